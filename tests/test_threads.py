import numpy as np
import pytest

from npformer import threads


def test_the_number_of_threads_is_set_and_restored():
    if threads._openblas() is None:
        pytest.skip("NumPy came without an OpenBLAS of its own")
    get, set_ = threads._openblas()
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
    monkeypatch.setattr(threads, "_openblas", lambda: None)
    with threads.blas_threads(1):
        assert (np.ones((2, 2)) @ np.ones((2, 2)) == 2).all()


def test_fewer_than_one_thread_is_refused():
    with pytest.raises(ValueError, match="n=0, expected at least 1 thread"), threads.blas_threads(0):
        pass
