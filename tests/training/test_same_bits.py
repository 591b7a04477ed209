"""When a training gives the same bits (docs/guides/same-bits.md), in one process.

Those of ranks are in tests/ranks.
"""

import threading
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from npformer import Adam, CopyTask, Trainer, Transformer
from npformer.reference import global_norm, norms_of_blocks
from npformer.reference.math.update import NORM_BLOCK, norm_of
from npformer.runtime import blas_threads as blas, threads

TASK = CopyTask(vocab=20, min_len=40, max_len=60)
pytestmark = pytest.mark.skipif(
    blas.openblas_function("get_num_threads") is None, reason="NumPy is not linked to OpenBLAS"
)


def train(n_shards, rows, dtype="float32"):
    """Loss, norm and parameters of a clipped step, whose products two BLAS threads divide."""
    model = Transformer(20, 20, d_model=256, n_heads=2, n_layers=1, d_ff=300, dtype=dtype)
    trainer = Trainer(model, Adam(0.01), n_shards=n_shards, backend="cpu", clip_norm=0.1)
    loss = trainer.step(*TASK.batch(0, rows))
    return (loss, trainer.last.grad_norm), trainer.flat_params


def assert_same(found, expected):
    assert found[0] == expected[0]
    assert_array_equal(found[1], expected[1])


@contextmanager
def beside_a_thread_that_sets_the_number_of_threads():
    stop = threading.Event()

    def toggle():
        while not stop.is_set():
            with blas.blas_threads(1):
                pass
            with blas.blas_threads(2):
                pass

    thread = threading.Thread(target=toggle)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


CIRCUMSTANCES = {
    "one thread": lambda: blas.blas_threads(1),
    "three threads": lambda: blas.blas_threads(3),
    "one core": lambda: patch.object(threads, "cores", return_value=1),
    "another thread sets it": beside_a_thread_that_sets_the_number_of_threads,
}


@pytest.fixture(scope="module", autouse=True)
def three_cores_and_two_threads():
    with patch.object(threads, "cores", return_value=3), blas.blas_threads(2):
        yield


@pytest.fixture(
    scope="module",
    params=[(2, 3, "float32"), (3, 3, "float64"), (2, 1, "float32"), (1, 12, "float32")],
    ids=str,
)
def on_two_threads(request):
    """Shards, rows and dtype of a training, and what it gives."""
    return request.param, train(*request.param)


@pytest.mark.parametrize("circumstances", CIRCUMSTANCES)
def test_shards_are_the_same_on_any_number_of_threads(on_two_threads, circumstances):
    settings, expected = on_two_threads
    with CIRCUMSTANCES[circumstances]():
        assert_same(train(*settings), expected)


def test_more_threads_than_cores_compute_the_same_bits():
    alone = train(16, 16)
    with patch.object(threads, "cores", return_value=64), blas.blas_threads(64):
        assert_same(train(16, 16), alone)


def test_the_products_of_one_shard_are_divided():
    with patch.object(threads, "in_parallel", side_effect=threads.in_parallel) as divided:
        train(1, 12)
    assert divided.call_count > 0


def test_without_a_number_of_shards_the_number_of_threads_decides(monkeypatch):
    monkeypatch.setattr("npformer.training.shards.WORTH_SHARDS", 1)  # this batch is small
    monkeypatch.setattr("npformer.training.shards.FOR_AN_ARRAY", 0)
    assert_same(train(None, 4), train(2, 4))


def test_the_library_s_own_limit_holds_while_another_thread_sets_one():
    get = blas.openblas_function("get_num_threads")
    with blas.one_blas_thread():
        assert get() == 1
        with blas.blas_threads(3):
            assert get() == 1
            assert threads.n_threads() == 3
        assert get() == 1
    assert get() == 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_norm_does_not_depend_on_who_computes_which_blocks(dtype):
    gradient = np.random.default_rng(0).standard_normal(10 * NORM_BLOCK + 7).astype(dtype)
    parts = [
        norms_of_blocks(part) for part in (gradient[3 * NORM_BLOCK :], gradient[: 3 * NORM_BLOCK])
    ]
    assert norm_of(np.concatenate(parts)) == global_norm(gradient)
