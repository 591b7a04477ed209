import threading
import time

import numpy as np
import pytest

from npformer import threads


def test_the_number_of_threads_is_set_and_restored():
    get, set_ = threads.openblas_function("get_num_threads"), threads.openblas_function("set_num_threads", None)
    if get is None:
        pytest.skip("NumPy is not linked to OpenBLAS")
    before = get()
    set_(2)
    try:
        with threads.blas_threads(1):
            assert get() == 1
        assert get() == 2
        with pytest.raises(KeyError), threads.blas_threads(1):
            raise KeyError
        assert get() == 2
        with threads.blas_threads(None):
            assert get() == 2
    finally:
        set_(before)


def test_without_openblas_nothing_happens(monkeypatch):
    monkeypatch.setattr(threads, "openblas_function", lambda name, restype=None: None)
    with threads.blas_threads(1):
        assert (np.ones((2, 2)) @ np.ones((2, 2)) == 2).all()


def test_fewer_than_one_thread_is_refused():
    with pytest.raises(ValueError, match="n=0, expected at least 1 thread"), threads.blas_threads(0):
        pass


def test_parts_run_side_by_side_on_one_blas_thread_each_and_results_keep_their_order(two_threads):
    meeting = threading.Barrier(2, timeout=10)  # nobody passes it alone

    def work(part):
        meeting.wait()
        return part, threads.n_threads(), threading.get_ident()

    results = threads.in_parallel(work, [10, 11, 12, 13])
    assert [part for part, _, _ in results] == [10, 11, 12, 13]
    assert {n for _, n, _ in results} == {1}
    assert results[0][2] == results[2][2] != results[1][2] == results[3][2]
    assert threads.n_threads() == 2


def test_inside_parallel_work_everything_runs_on_one_thread(two_threads):
    def work(part):
        return threads.in_parallel(lambda inner: threading.get_ident(), range(3))

    assert all(len(set(idents)) == 1 for idents in threads.in_parallel(work, range(2)))


def test_an_error_in_one_part_is_raised_after_all_have_ended(two_threads):
    ended = []

    def work(part):
        if part == 1:
            raise KeyError(part)
        time.sleep(0.05)
        ended.append(part)

    with pytest.raises(KeyError):
        threads.in_parallel(work, range(3))
    assert ended == [0, 2]
    assert threads.in_parallel(lambda part: part, range(3)) == [0, 1, 2]  # and it goes on working


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    with threads.blas_threads(2):
        yield
