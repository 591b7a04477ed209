"""Arrays whose memory is used again once nobody refers to them.

A step allocates the same arrays as the step before, and memory that comes fresh from the system costs a page fault
every 4 KB, more than the arithmetic of many kernels. So when an array dies its memory goes to a list, from which the
next array of about that size gets it.
"""

import math
import threading
import weakref
from collections import defaultdict
from functools import partial

import numpy as np

SMALLEST = 2**18  # bytes; below this, malloc keeps memory itself
ALIGNMENT = 64  # bytes: of vector instructions and cache lines
TRIED = 4  # sizes from which memory is taken, up to twice of what is needed


class _Pool(threading.local):  # one a thread: what a thread has in its cache it gets again
    def __init__(self):
        self.free = defaultdict(list)
        self.alive = {}  # weak references to arrays handed out, which work as long as they are kept


_pool = _Pool()


def empty(shape, dtype):
    """An array with arbitrary contents, as ``numpy.empty``."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes < SMALLEST:
        return np.empty(shape, dtype)
    memory, size = _memory(n_bytes)
    array = np.ndarray(shape, dtype, memory)
    reference = weakref.ref(array, partial(_recycle, _pool.free[size], _pool.alive, memory))
    _pool.alive[id(reference)] = reference
    return array


def _memory(n_bytes):
    """Memory for so many bytes, and the size it is filed under: a power of two in quarters."""
    step = 2 ** (n_bytes.bit_length() - 3)
    smallest = -(-n_bytes // step) * step
    for size in range(smallest, smallest + TRIED * step, step):
        if _pool.free[size]:
            return _pool.free[size].pop(), size
    block = np.empty(smallest + ALIGNMENT, np.uint8)
    start = -block.__array_interface__["data"][0] % ALIGNMENT
    return memoryview(block)[start : start + smallest], smallest  # views of an array on it will refer to that array


def _recycle(free, alive, memory, reference):
    del alive[id(reference)]
    free.append(memory)
