"""Products of a few rows, which threads share piece by piece."""

import math
import threading
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_close
from programs import environment, in_threads, python
from results import FLOATS, assert_same_with_helpers, wait_for_helpers

from npformer import Transformer, greedy_decode
from npformer.cpu import linear
from npformer.cpu.few_rows import helpers, multiply_few_rows, team_for
from npformer.cpu.few_rows.dots import multiply_transposed
from npformer.cpu.few_rows.panels import (
    COLUMNS,
    columns_in_panels,
    multiply_tiles,
    rows_in_panels,
)
from npformer.runtime import preemptions
from npformer.runtime.blas_threads import blas_threads
from npformer.runtime.threads import (
    in_parallel,
    kernel_threads,
    n_kernel_threads,
    n_threads,
    spinning_limit,
)

pytestmark = pytest.mark.skipif(
    not helpers.JIT, reason="the helper and the tiles are nothing but compiled code"
)
SHAPES = [(1, 512, 64), (1, 100, 777), (3, 131, 777), (8, 9, 5000)]
SHAPES += [(9, 131, 777), (17, 64, 512), (64, 65, 1030)]
SHAPES += [(m, 128, 257) for m in range(1, 8)]
SHAPES += [(65, 128, 512), (16, 1, 40000)]
RNG = np.random.default_rng(0)
FORMS = ["rows", "columns", "integers", "panels"]


@pytest.fixture(autouse=True)
def two_threads():
    """Two threads, also if the tests run on one thread."""
    with blas_threads(2):
        yield


def in_form(form, b):
    """A matrix in one of the forms in which it can be given, and its panels, which may be empty."""
    nothing = np.empty(0, b.dtype)
    match form:
        case "panels":
            return b, columns_in_panels([b])[0]
        case "columns":
            return np.ascontiguousarray(b.T).T, nothing
        case "integers":
            return np.clip(32 * b.T, -127, 127).astype(np.int8, order="C"), nothing
    return b, nothing


def product(a, b, panels, out):
    multiply_few_rows(team_for(a.dtype, b.dtype), a, b, panels, out)
    return out


def numbers(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("form", FORMS)
@FLOATS
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_the_product(m, k, n, dtype, form):
    a = numbers(m, k, dtype=dtype)
    b, panels = in_form(form, numbers(k, n, dtype=dtype))
    assert form != "panels" or len(panels) >= b.size
    out = product(a, b, panels, np.full((m, n), np.nan, dtype))
    wide = b.T.astype(dtype) if form == "integers" else b
    assert_close(out, a @ wide, 50 * np.finfo(dtype).eps * k**0.5)


@pytest.mark.parametrize("form", ["rows", "columns", "integers"])
@FLOATS
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 16, 17, 23])
def test_only_the_columns_that_were_asked_for_are_written(m, dtype, form):
    """By dot products with columns that are contiguous, and by tiles, which have whole rows."""
    a = numbers(m, 29, dtype=dtype)
    b, _ = in_form(form, numbers(29, 1000, dtype=dtype))
    out = np.full((m, 1000), np.nan, dtype)
    first = 100
    last = 100 + COLUMNS + 13
    if form == "rows":
        columns = b
        multiply_tiles(rows_in_panels(a), b, out, first, last)
    elif form == "columns":
        columns = b
        multiply_transposed(a, b.T, out, first, last)
    else:
        columns = b.T
        multiply_transposed(a, b, out, first, last)
    tolerance = 1e-2 if dtype == "float32" else 1e-11
    expected = a @ columns[:, first:last].astype(dtype)
    np.testing.assert_allclose(out[:, first:last], expected, atol=tolerance)
    assert np.isnan(out[:, :first]).all()
    assert np.isnan(out[:, last:]).all()


def test_without_the_jit():
    """The helper and the tiles are compiled code; BLAS takes their place."""
    code = """
import numpy as np
from npformer.cpu import linear
from npformer.runtime.threads import kernel_threads
with kernel_threads():
    y = linear(np.ones((2, 256), "float32"), np.ones((256, 512), "float32"))
assert (y == 256).all()
"""
    python("-c", code, env=environment(NUMBA_DISABLE_JIT="1"))


def test_single_rows_whose_stride_means_nothing():
    """As of ``x[None]`` and ``broadcast_to``.

    NumPy calls them contiguous whatever their first stride is.
    """
    x = numbers(192)
    weight = numbers(192, 256)
    for row in (x[None], np.broadcast_to(x, (1, 192))):
        np.testing.assert_allclose(linear(row, weight), row.copy() @ weight, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
# there may be more threads than cores
@pytest.mark.parametrize(("m", "threads"), [(1, 2), (8, 4), (30, 16)])
def test_the_same_bits_with_any_number_of_helpers(m, threads, form, monkeypatch):
    a = numbers(m, 512)
    b, panels = in_form(form, numbers(512, 1000))

    def work():
        return product(a, b, panels, np.empty((m, 1000), "float32"))

    assert_same_with_helpers(work, work(), threads, monkeypatch)


def test_helpers_beyond_a_lower_limit_end_while_others_go_on(monkeypatch):
    a = numbers(1, 512)
    b = numbers(512, 1000)
    out = np.empty((1, 1000), "float32")
    deadline = time.monotonic() + 60
    monkeypatch.setattr(helpers, "cores_are_taken", lambda: False)
    for threads in (4, 2):
        monkeypatch.setattr(helpers, "n_kernel_threads", lambda n=threads: n)
        while helpers.board[helpers.AWAKE] != threads - 1:
            product(a, b, np.empty(0, "float32"), out)  # there is always work
            assert time.monotonic() < deadline


def test_a_new_board_announces_nothing_nor_does_that_of_a_fork():
    code = """
import os
from npformer.cpu.few_rows import helpers
assert not helpers._take_a_piece(helpers.ADDRESS)
helpers.board[helpers.LEFT] = 1
if os.fork():
    assert os.wait()[1] == 0
else:
    os._exit(int(helpers._take_a_piece(helpers.ADDRESS)))
"""
    python("-c", code)


def test_threads_that_multiply_at_once_do_not_disturb_each_other():
    before = n_threads()
    weights = [numbers(256, 512) for _ in range(4)]
    x = numbers(4, 2, 256)
    expected = [linear(x[i], weights[i]) for i in range(4)]
    wrong = []

    def is_right(i):
        return np.allclose(linear(x[i], weights[i]), expected[i], atol=1e-4)

    def work(i):
        with kernel_threads():
            wrong.extend(i for _ in range(300) if not is_right(i))

    in_threads(*(partial(work, i) for i in range(4)))
    assert not wrong
    assert n_threads() == before


def test_helpers_fall_asleep():
    """Soon, if they have cores. Beside busy programs it takes seconds, but little computing."""
    with kernel_threads():
        team_for(np.dtype("float32"))
    begin = time.process_time()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)
        if helpers.board[helpers.AWAKE] == 0:
            assert time.process_time() - begin < 1
            return
    raise AssertionError("a helper is still awake after a minute without work")


def test_a_helper_that_looks_for_pieces_takes_parts_of_other_work(monkeypatch):
    """Else the first layers of a sentence would have one thread,
    right after the last step of another.
    """
    monkeypatch.setattr("npformer.runtime.threads.n_threads", lambda: 2)
    monkeypatch.setattr(helpers, "cores_are_taken", lambda: False)
    n_looking = 0
    deadline = time.monotonic() + 60
    while n_looking < 20 and time.monotonic() < deadline:
        with kernel_threads():
            team_for(np.dtype("float32"))
        wait_for_helpers()  # on a busy machine it takes a while until the helper has a core
        n_looking += int(helpers.board[helpers.AWAKE] > 0)
        both = threading.Barrier(2, timeout=30)
        in_parallel(lambda _, both=both: both.wait(), [0, 1])  # which only two threads pass
        assert spinning_limit.value == 0  # so that the helper comes at once
    assert n_looking == 20


def test_kernel_threads_says_how_many_and_restores():
    n = n_threads()
    assert n_kernel_threads() == 0
    with kernel_threads():
        assert (n_kernel_threads(), n_threads()) == (n, n)
        with kernel_threads():
            assert n_kernel_threads() == n
    assert (n_kernel_threads(), n_threads()) == (0, n)


def test_decoding_one_sentence_gives_what_the_reference_gives_each_time():
    model = Transformer(300, 300, d_model=192, n_heads=4, n_layers=2, d_ff=384)
    params = model.init(0)
    src = RNG.integers(3, 300, (1, 12))
    decode = partial(greedy_decode, model, params, src, bos_id=1, eos_id=2, max_len=20)
    expected = decode(backend="reference")
    for _ in range(20):
        assert_array_equal(decode(backend="cpu"), expected)


def test_a_thread_that_loses_its_core_again_and_again_works_alone_for_a_while(monkeypatch):
    """Once is not enough: the tasks of the system take it at times on an idle machine, too."""
    now = n = 0
    monkeypatch.setattr(helpers, "n_kernel_threads", lambda: 2)
    monkeypatch.setattr(preemptions, "n_preemptions", lambda: n)
    monkeypatch.setattr(preemptions, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(preemptions, "_count", preemptions.Count())
    of_a_window = math.ceil(preemptions.MANY_A_SECOND * preemptions.WINDOW)
    for lost, alone in [(1, False), (3 * of_a_window, True), (2, False), (0, False)]:
        now += 1.1 * preemptions.WINDOW
        n += lost
        assert team_for(np.dtype("float32"))[0] == (0 if alone else helpers.ADDRESS)
        assert spinning_limit.value == (0 if alone else 1)  # those that look for work leave
        now += 0.5 * preemptions.WINDOW  # in the window, it stays so
        assert team_for(np.dtype("float32"))[0] == (0 if alone else helpers.ADDRESS)
