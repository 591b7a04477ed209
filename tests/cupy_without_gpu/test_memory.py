"""The memory of trainings, if there is too little of it, and after them."""

import gc
import sys
import warnings

import cupy
import numpy as np
import pytest
from cupy_without_gpu import CUDA

from npformer import Adam, Trainer, Transformer, gpu

MODEL = Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32, dropout=0.1)
UNLIMITED = 80 * 2**30
LIMITS = np.linspace(0.3, 1.0, 8)  # as parts of what a training takes


@pytest.fixture(autouse=True)
def memory_is_small_and_then_free(monkeypatch):
    monkeypatch.setattr(sys.modules["npformer.gpu.blas"], "WORKSPACE", 2**16)
    free_everything()
    yield
    CUDA.make_believe_limit(UNLIMITED)
    CUDA.make_believe_freeing_spoils(False)


def free_everything():
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()


def batches():
    """Two shapes, each of which is first computed, then recorded, then replayed;
    and a large one in between.
    """
    rng = np.random.default_rng(0)
    for n in (8, 16, 8, 16, 32, 16, 8, 32, 16, 8):
        src, tgt = rng.integers(3, 11, (n, 8)), rng.integers(3, 11, (n, 9))
        tgt[:, 0] = 1
        yield src, tgt


def losses_of(trainer):
    """The losses up to the first step for which there is too little memory, and the warnings."""
    losses = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in batches():
            try:
                losses.append(trainer.step(*batch))
            except cupy.cuda.memory.OutOfMemoryError:
                break
    return losses, [str(warning.message) for warning in caught]


def new_trainer():
    return Trainer(MODEL, Adam(0.01), backend=gpu)


def memory_that_a_training_takes():
    before = CUDA.make_believe_used()
    trainer = new_trainer()
    expected, caught = losses_of(trainer)
    assert not caught and len(trainer._recorded_step.recordings) == 3
    return expected, before, CUDA.make_believe_used() - before


@pytest.mark.parametrize("freeing_spoils", [False, True])
def test_a_training_in_too_little_memory_is_right_or_stops(freeing_spoils):
    expected, before, needed = memory_that_a_training_takes()
    CUDA.make_believe_freeing_spoils(freeing_spoils)
    done = []
    for part in LIMITS:
        free_everything()
        before = CUDA.make_believe_used()
        try:
            CUDA.make_believe_limit(before + int(part * needed))
            trainer = new_trainer()
        except cupy.cuda.memory.OutOfMemoryError:
            continue
        losses, caught = losses_of(trainer)
        np.testing.assert_array_equal(losses, expected[: len(losses)])
        assert all("too little memory to record" in message for message in caught)
        done.append(len(losses))
        CUDA.make_believe_limit(UNLIMITED)
        del trainer
    assert done == sorted(done) and done[-1] == len(expected)


def test_a_limit_of_cupys_pool_is_obeyed():
    """CuPy then gives memory back before it asks for more."""
    expected, _, needed = memory_that_a_training_takes()
    done = []
    for part in LIMITS:
        trainer = new_trainer()
        trainer._recorded_step.memory.pool.set_limit(size=int(part * needed))
        losses, _ = losses_of(trainer)
        np.testing.assert_array_equal(losses, expected[: len(losses)])
        done.append(len(losses))
    assert done[-1] == len(expected) and len(set(done)) > 1


def test_trainers_that_are_dropped_leave_no_memory_behind():
    used = []
    for _ in range(4):
        losses_of(new_trainer())
        free_everything()
        used.append(CUDA.make_believe_used())
    assert used[1:] == used[1:2] * 3


def test_steps_that_are_not_recorded_use_the_memory_of_those_that_are():
    before = cupy.get_default_memory_pool().total_bytes()
    trainer = new_trainer()
    losses_of(trainer)
    trainer.step(batches=batches())
    assert (
        cupy.get_default_memory_pool().total_bytes() - before
        < trainer._recorded_step.memory.pool.total_bytes() / 2
    )
