"""A training in a process that ``multiprocessing`` starts while a thread of this one trains."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from tests.tools.fork_training import work, work_until

PATIENCE = 120  # seconds after which a child counts as hanging


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_child_has_the_same_bits_beside_a_thread_that_trains(method):
    wanted, stop = work(0), threading.Event()
    thread = threading.Thread(target=work_until, args=(stop, 0))
    thread.start()
    try:
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            children = [pool.submit(work, 0) for _ in range(2)]
            for child in children:
                np.testing.assert_array_equal(child.result(PATIENCE), wanted)
    finally:
        stop.set()
        thread.join()
