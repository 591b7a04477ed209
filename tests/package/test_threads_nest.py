"""Blocks of ``blas_threads`` in several Python threads at once."""

import threading

import pytest

from npformer.threads import blas_threads, openblas_function

GET = openblas_function("get_num_threads")
pytestmark = pytest.mark.skipif(GET is None, reason="NumPy is not linked to OpenBLAS")


def test_blocks_that_overlap_leave_everything_as_it_was():
    """They once left one thread for good: the second block to begin saw, and restored, what the first had set."""
    before, began, ended = GET(), threading.Event(), threading.Event()

    def other():
        with blas_threads(1):
            began.set()
            ended.wait(10)

    with blas_threads(2):
        thread = threading.Thread(target=other)
        thread.start()
        began.wait(10)
        assert GET() == 1
    assert GET() == 1  # the other block has not ended
    ended.set()
    thread.join()
    assert GET() == before


def test_blocks_in_one_another():
    before = GET()
    with blas_threads(1):
        with blas_threads(2):
            assert GET() == 2
        assert GET() == 1
    assert GET() == before
