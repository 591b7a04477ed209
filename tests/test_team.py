"""Products of a few rows, which threads share piece by piece."""

import threading
import time

import numpy as np
import pytest

from npformer import Transformer, greedy_decode
from npformer.cpu import linear, team
from npformer.cpu.blas import BLAS
from npformer.threads import in_parallel, kernel_threads, n_kernel_threads, n_threads

pytestmark = pytest.mark.skipif(not hasattr(team.multiply_few_rows, "py_func"), reason="the JIT is switched off")
RNG = np.random.default_rng(0)


def multiply(a, b, out, add=False):
    address, wide, board = BLAS[a.dtype]
    team.multiply_few_rows(board, (address, wide), a, b, out, add)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 512, 64), (3, 131, 777), (8, 9, 5000), (9, 131, 777), (64, 65, 1030)])
def test_the_product(m, k, n, dtype, transposed):
    a, b = RNG.standard_normal((m, k)).astype(dtype), RNG.standard_normal((k, n)).astype(dtype)
    b = np.ascontiguousarray(b.T).T if transposed else b
    out = np.full((m, n), np.nan, dtype)
    multiply(a, b, out)
    tolerance = 50 * np.finfo(dtype).eps * k**0.5
    np.testing.assert_allclose(out, a @ b, rtol=0, atol=tolerance)
    multiply(a, b, out, add=True)
    np.testing.assert_allclose(out, 2 * (a @ b), rtol=0, atol=2 * tolerance)


@pytest.mark.parametrize("m", [1, 8, 30])
def test_the_same_bits_with_and_without_helpers(m):
    a, b = RNG.standard_normal((m, 512), "float32"), RNG.standard_normal((512, 1000), "float32")
    alone, helped = np.empty((2, m, 1000), "float32")
    time.sleep(0.02)  # helpers of other tests fall asleep
    with kernel_threads():
        multiply(a, b, alone)
    for _ in range(200):
        with kernel_threads():
            team.wake_helpers()
            multiply(a, b, helped)
        np.testing.assert_array_equal(helped, alone)


def test_threads_that_multiply_at_once_do_not_disturb_each_other():
    weights = [RNG.standard_normal((256, 512), "float32") for _ in range(4)]
    x = RNG.standard_normal((4, 2, 256), "float32")
    expected = [linear(x[i], weights[i]) for i in range(4)]
    wrong = []

    def work(i):
        with kernel_threads():
            wrong.extend(i for _ in range(300) if not np.array_equal(linear(x[i], weights[i]), expected[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_helpers_fall_asleep():
    with kernel_threads():
        team.wake_helpers()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.05)
        if team.board[team.AWAKE] == 0:
            return
    raise AssertionError("a helper is still awake after ten seconds without work")


def test_kernel_threads_says_how_many_and_restores():
    n = n_threads()
    assert n_kernel_threads() == 0
    with kernel_threads():
        assert (n_kernel_threads(), n_threads()) == (n, n)
        with kernel_threads():
            assert n_kernel_threads() == n
    assert (n_kernel_threads(), n_threads()) == (0, n)
    with kernel_threads():
        several = n > 1  # threads, each of which is one of several, with no helpers of its own
        assert in_parallel(lambda _: n_kernel_threads(), [0, 1]) == ([0, 0] if several else [n, n])


def test_decoding_one_sentence_gives_the_same_each_time():
    model = Transformer(300, 300, d_model=192, n_heads=4, n_layers=2, d_ff=384)
    params, src = model.init(0), RNG.integers(3, 300, (1, 12))
    said = [greedy_decode(model, params, src, bos_id=1, eos_id=2, max_len=20).tolist() for _ in range(20)]
    assert all(each == said[0] for each in said)
