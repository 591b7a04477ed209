"""Memory is reused as soon as nothing refers to it any more, and never before."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from programs import FORKS_WARN, WITH_FORK, forked, in_threads

import npformer as nf
from npformer import cpu
from npformer.runtime import memory
from npformer.runtime.blas_threads import blas_threads

SHAPE = (300, 1000)


def address(x):
    return x.__array_interface__["data"][0]


def new(value, shape=SHAPE):
    x = memory.empty(shape, np.dtype(np.float32))
    x.fill(value)
    return x


@pytest.fixture
def fresh(monkeypatch):
    """The sizes that were allocated from the system; the pool starts empty."""
    sizes = []
    pages = memory._pages
    monkeypatch.setattr(memory, "_pool", memory._Pool())
    monkeypatch.setattr(memory, "_pages", lambda n_bytes: sizes.append(n_bytes) or pages(n_bytes))
    return sizes


def test_memory_of_a_dead_array_is_used_again(fresh):
    for _ in range(10):
        new(1)
    assert len(fresh) == 1


VIEWS = {
    "reshape": lambda x: x.reshape(-1),
    "view of a view": lambda x: x.reshape(10, 30, 1000).swapaxes(0, 1)[3],
    "broadcast": lambda x: np.broadcast_to(x, (2, *SHAPE)),
    "another dtype": lambda x: x.view(np.int32),
    "memoryview": lambda x: np.asarray(memoryview(x)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_keeps_its_memory(view):
    x = new(1)
    seen = VIEWS[view](x)
    expected = seen.copy()
    del x
    others = [new(i) for i in range(5)]
    assert_array_equal(seen, expected)
    assert len({address(other) for other in others}) == 5


def test_larger_memory_serves_up_to_half_its_size(fresh):
    size = new(1, (4, 100_000)).nbytes
    new(2, (3, 100_000))
    assert len(fresh) == 1
    new(3, (1, 100_000))
    assert len(fresh) == 2
    assert sum(fresh) < 3 * size


def test_memory_freed_by_another_thread_comes_back(fresh):
    box = [new(1)]
    in_threads(box.clear)
    new(2)
    assert len(fresh) == 1


def test_small_arrays_are_not_pooled(fresh):
    new(1, (8, 8))
    assert fresh == []


def test_arrays_do_not_all_begin_at_the_same_place_of_a_page():
    arrays = [new(1) for _ in range(8)]
    assert len({address(x) % 4096 for x in arrays}) == 8
    assert all(address(x) % 64 == 0 for x in arrays)


def test_results_of_operations_stay_what_they_were():
    rng = np.random.default_rng(0)
    gain, bias = np.ones((2, 600), np.float32)
    inputs = rng.standard_normal((5, 500, 600), np.float32)
    results = [cpu.layer_norm(x, gain, bias)[0] for x in inputs]
    for x, y in zip(inputs, results, strict=True):
        again, *_ = cpu.layer_norm(x, gain, bias)
        assert_array_equal(y, again)


def test_training_asks_for_memory_in_its_first_steps_only(fresh):
    model = nf.Transformer(1000, 1000, d_model=64, n_heads=4, n_layers=1, d_ff=256)
    trainer = nf.Trainer(model, nf.Adam(0.001), backend="cpu", n_shards=1)
    ids = np.random.default_rng(0).integers(1, 1000, (64, 31))
    ids[:, 0] = 1
    for _ in range(2):
        trainer.step(ids, ids)
    asked = len(fresh)
    assert asked > 10
    for _ in range(5):
        trainer.step(ids, ids)
    assert len(fresh) == asked


def test_memory_of_what_was_smaller_is_given_back_when_more_is_asked_for(fresh):
    for rows in range(1, 40):
        new(1, (rows, 100_000))
    assert sum(n * len(blocks) for n, blocks in memory._pool.free.items()) < 3 * 39 * 400_000


@WITH_FORK
@FORKS_WARN
def test_a_forked_process_has_memory_of_its_own():
    x = new(1)

    def work():
        x.fill(2)
        return 0

    assert forked(work) == 0
    assert (x == 1).all()


def test_shards_in_threads_do_not_share_memory():
    """Arrays above the pool's smallest size, from both threads at once.

    The whole batch's gradient in the end.

    Not with ReLU: where its input is almost 0, rounding decides whether a gradient passes.
    """
    model = nf.Transformer(
        500, 500, d_model=64, n_heads=4, n_layers=1, d_ff=256, dropout=0.0, activation="gelu"
    )
    ids = np.random.default_rng(0).integers(1, 500, (64, 41))
    ids[:, 0] = 1
    gradients = []
    for n_shards in (1, 2):
        trainer = nf.Trainer(model, nf.SGD(0.1), backend="cpu", n_shards=n_shards)
        with blas_threads(2):
            for _ in range(2):
                trainer.step(ids, ids)
        gradients.append(trainer.state.flat_grads)
    np.testing.assert_allclose(*gradients, rtol=0, atol=1e-5 * np.abs(gradients[0]).max())
