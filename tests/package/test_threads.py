import threading
import time
from collections import deque

import numpy as np
import pytest
from programs import FORKS_WARN, WITH_FORK, forked, in_threads
from results import wait_for_helpers

import npformer as npf
from npformer import reference
from npformer.runtime import blas_threads as blas, threads

GET = blas.openblas_function("get_num_threads")
WITH_OPENBLAS = pytest.mark.skipif(GET is None, reason="NumPy is not linked to OpenBLAS")


@WITH_OPENBLAS
def test_the_number_of_threads_is_set_and_restored():
    set_ = blas.openblas_function("set_num_threads", None)
    before = GET()
    set_(2)
    try:
        with blas.blas_threads(1):
            assert GET() == 1
        assert GET() == 2
        with pytest.raises(KeyError), blas.blas_threads(1):
            raise KeyError
        assert GET() == 2
        with blas.blas_threads(None):
            assert GET() == 2
    finally:
        set_(before)


def test_without_openblas_nothing_happens(monkeypatch):
    monkeypatch.setattr(blas, "_functions", lambda: (None, None))
    with blas.blas_threads(1):
        assert (np.ones((2, 2)) @ np.ones((2, 2)) == 2).all()


def test_fewer_than_one_thread_is_refused():
    with pytest.raises(ValueError, match="n=0, expected at least 1"), blas.blas_threads(0):
        pass


def test_parts_run_side_by_side_on_one_blas_thread_each_and_results_keep_their_order(two_threads):
    meeting = threading.Barrier(2, timeout=10)  # nobody passes it alone

    def work(part):
        meeting.wait()
        return part, threads.n_threads(), threading.get_ident()

    results = threads.in_parallel(work, [10, 11, 12, 13])
    assert [part for part, _, _ in results] == [10, 11, 12, 13]
    assert {n for _, n, _ in results} == {1}
    assert len({thread for _, _, thread in results}) == 2
    assert threads.n_threads() == 2


def test_nobody_waits_for_a_helper_that_does_not_run(two_threads, monkeypatch):
    late, done = [], []
    monkeypatch.setattr(threads, "call_helpers", lambda n, function: late.append(function))
    assert threads.in_parallel(lambda part: done.append(part) or part, [1, 2, 3]) == [1, 2, 3]
    late[0]()  # now it runs, and finds nothing to do
    assert done == [1, 2, 3]


def test_a_helper_computes_what_the_caller_has_not_begun(two_threads):
    caller, others = threading.get_ident(), []
    waiting = threading.Event()

    def work(part):
        if threading.get_ident() == caller:
            waiting.wait(timeout=10)  # the first part takes long
            return
        others.append(part)
        if len(others) == 9:
            waiting.set()

    threads.in_parallel(work, range(10))
    assert len(others) >= 9  # all ten, if the helper was there before the caller took the first


class Slow(deque):
    """A deque in which it takes a while until something is there."""

    def append(self, x):
        time.sleep(0.01)
        super().append(x)


def test_a_helper_of_one_work_is_there_for_the_next(two_threads, monkeypatch):
    """It is idle before the caller goes on; else one work of twenty was computed by one thread."""
    wait_for_helpers()
    monkeypatch.setattr(threads, "_idle", Slow(threads._idle))
    monkeypatch.setattr(threads, "_helpers", list(threads._idle)[:1])  # there will be no other one
    for _ in range(10):
        meeting = threading.Barrier(2, timeout=5)  # nobody passes it alone
        threads.in_parallel(lambda part, meeting=meeting: meeting.wait(), range(2))


def test_threads_that_need_the_first_helper_at_once_start_only_one(two_threads, monkeypatch):
    def start_slowly(helper):
        time.sleep(0.05)  # in which the other threads look for a helper
        threading.Thread.start(helper)

    monkeypatch.setattr(threads._Helper, "start", start_slowly)
    monkeypatch.setattr(threads, "_idle", deque())
    monkeypatch.setattr(threads, "_helpers", [])
    in_threads(*[lambda: threads.in_parallel(abs, [1, 2])] * 4)
    assert len(threads._helpers) == 1
    wait_for_helpers()  # else it would say after the test that it is idle


def test_a_helper_that_cannot_start_does_not_count(two_threads, monkeypatch):
    def fail(helper):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads._Helper, "start", fail)
    monkeypatch.setattr(threads, "_idle", deque())
    monkeypatch.setattr(threads, "_helpers", [])
    assert threads.in_parallel(abs, [-1, -2]) == [1, 2]
    assert threads._helpers == []


@pytest.mark.parametrize(
    ("n", "expected"), [(100, 1), (511, 1), (512, 2), (1023, 2), (1024, 4), (10**6, 16)]
)
def test_products_are_divided_by_their_sizes(two_threads, n, expected):
    assert threads.n_parts(n, 256, 2**20) == expected
    with blas.blas_threads(1):
        assert threads.n_parts(n, 256, 2**20) == expected


def test_nobody_waits_for_a_part_that_has_failed(two_threads):
    def work(part, reached):
        if part == 0:
            time.sleep(0.02)
            raise KeyError(part)
        reached()
        return part

    with pytest.raises(KeyError):
        threads.in_order(threads.in_parallel, work, range(4))


def test_inside_parallel_work_everything_runs_on_one_thread(two_threads):
    def work(part):
        return threads.in_parallel(lambda inner: threading.get_ident(), range(3))

    assert all(len(set(idents)) == 1 for idents in threads.in_parallel(work, range(2)))


def test_an_error_in_one_part_is_raised_after_those_have_ended_that_had_begun(two_threads):
    ended = []

    def work(part):
        if part == 1:
            raise KeyError(part)
        time.sleep(0.05)
        ended.append(part)

    with pytest.raises(KeyError):
        threads.in_parallel(work, range(3))
    assert ended == [0]
    assert threads.in_parallel(lambda part: part, range(3)) == [0, 1, 2]  # and it goes on working


@pytest.fixture
def two_threads(monkeypatch):
    wait_for_helpers()
    monkeypatch.setattr(threads, "cores", lambda: 2)
    with blas.blas_threads(2):
        yield


def test_a_second_thread_that_wants_the_cores_meanwhile_works_alone(two_threads):
    started, go_on = threading.Event(), threading.Event()

    def first(part):
        started.set()
        go_on.wait(timeout=10)

    def second():
        started.wait(timeout=10)
        idents.extend(threads.in_parallel(lambda part: threading.get_ident(), range(4)))
        go_on.set()

    idents = []
    other = threading.Thread(target=second)
    other.start()
    threads.in_parallel(first, range(2))
    other.join()
    assert len(set(idents)) == 1
    assert threads.n_threads() == 2  # and BLAS has the threads it had


def test_the_callers_floating_point_settings_hold_in_all_threads(two_threads):
    with np.errstate(over="raise", invalid="ignore"):
        settings = threads.in_parallel(lambda part: np.geterr(), [0, 1])
        assert settings == [np.geterr()] * 2


@WITH_FORK
@FORKS_WARN
def test_a_forked_process_has_threads_of_its_own(two_threads):
    assert threads.in_parallel(lambda part: part, [1, 2]) == [1, 2]
    assert forked(lambda: threads.in_parallel(lambda part: part, [3, 4]) != [3, 4]) == 0


@pytest.fixture
def numbers(monkeypatch):
    """The numbers of threads that are given to BLAS, one after another; the user gave it 2."""
    given = [2]
    monkeypatch.setattr(blas, "_functions", lambda: (lambda: given[-1], given.append))
    return given


def test_an_operation_has_one_blas_thread_and_leaves_the_number_of_the_user(numbers):
    npf.linear(np.ones((3, 4)), np.ones((4, 5)))
    assert numbers == [2, 1, 2]
    reference.linear(np.ones((3, 4)), np.ones((4, 5)))
    assert numbers == [2, 1, 2, 1, 2]


def test_a_step_sets_the_number_once(numbers):
    task = npf.CopyTask()
    model = npf.Transformer(task.vocab, task.vocab, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    trainer = npf.Trainer(model, npf.Adam(0.01))
    trainer.step(*task.batch(0, 4))
    assert numbers == [2, 1, 2]


def test_a_user_who_gives_blas_one_thread_is_asked_but_nothing_is_set(numbers):
    numbers[:] = [1]
    npf.linear(np.ones((3, 4)), np.ones((4, 5)))
    assert numbers == [1]
    assert threads.n_threads() == 1


@WITH_FORK
@FORKS_WARN
def test_a_forked_process_calls_nothing_of_blas_before_it_computes(two_threads, monkeypatch):
    """A thread of the parent may be in BLAS during the fork.

    Its lock is taken in the child for ever.
    """
    computing, has_forked = threading.Event(), threading.Event()

    def compute():
        with blas.blas_threads(3), blas.one_blas_thread():
            computing.set()
            has_forked.wait(10)

    thread = threading.Thread(target=compute)
    thread.start()
    computing.wait(10)
    calls = []

    def work():
        in_hooks = list(calls)
        with blas.one_blas_thread():
            pass
        return in_hooks != [] or calls != ["get", 2]  # 2 threads, as around the fork

    with monkeypatch.context() as patch:
        patch.setattr(blas, "_functions", lambda: (lambda: calls.append("get") or 1, calls.append))
        code = forked(work)
    has_forked.set()
    thread.join()
    assert code == 0


@WITH_OPENBLAS
def test_blocks_that_overlap_leave_everything_as_it_was():
    """They once left one thread for good.

    The second block to begin saw, and restored, what the first had set.
    """
    before, began, ended = GET(), threading.Event(), threading.Event()

    def other():
        with blas.blas_threads(1):
            began.set()
            ended.wait(10)

    with blas.blas_threads(2):
        thread = threading.Thread(target=other)
        thread.start()
        began.wait(10)
        assert GET() == 1
    assert GET() == 1  # the other block has not ended
    ended.set()
    thread.join()
    assert GET() == before


@WITH_OPENBLAS
def test_blocks_in_one_another():
    before = GET()
    with blas.blas_threads(1):
        with blas.blas_threads(2):
            assert GET() == 2
        assert GET() == 1
    assert GET() == before


@WITH_OPENBLAS
def test_a_limit_outlives_the_block_in_which_it_is_set():
    before = GET()
    try:
        with blas.blas_threads(3):
            blas.limit_blas_threads(2)
            assert GET() == 2
        assert GET() == 2
    finally:
        blas.limit_blas_threads(before)
    assert GET() == before
