"""Arrays whose memory is used again once nobody refers to them.

A step allocates the same arrays as the step before, and memory that comes fresh from the system costs a page fault
every 4 KB, more than the arithmetic of many kernels. So when an array dies its memory goes to a list, from which the
next array of about that size gets it.
"""

import itertools
import math
import mmap
import threading
import weakref
from collections import defaultdict
from functools import partial

import numpy as np

SMALLEST = 2**18  # bytes; below this, malloc keeps memory itself, once it is told to
TRIED = 4  # sizes from which memory is taken, up to twice of what is needed
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
COLOURS = itertools.cycle(range(0, PAGE := 4096, 5 * 64))  # were all to begin a page, they would meet in one cache set

# The malloc of glibc returns the free end of its heap to the system, unless it is smaller than twice the largest
# block that the program ever freed. This one makes it 32 MB. (A step of 10 ms lost more than 1 ms on getting back what
# had been returned.)
np.empty(2**24, np.uint8)


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
    array = np.ndarray(shape, dtype, memory, next(COLOURS))
    reference = weakref.ref(array, partial(_recycle, _pool.free[size], _pool.alive, memory))
    _pool.alive[id(reference)] = reference
    return array


def zeros(shape, dtype):
    """An array of zeros, as ``numpy.zeros``."""
    x = empty(shape, dtype)
    x.fill(0)
    return x


def _memory(n_bytes):
    """Memory for so many bytes, and the size it is filed under: a power of two in quarters."""
    step = 2 ** (n_bytes.bit_length() - 3)
    smallest = -(-n_bytes // step) * step
    for size in range(smallest, smallest + TRIED * step, step):
        if _pool.free[size]:
            return _pool.free[size].pop(), size
    for size, free in _pool.free.items():
        if size < smallest:  # what is asked for has grown: what was used before may never be again
            free.clear()
    return _pages(smallest + PAGE), smallest


def _pages(n_bytes):
    """Fresh memory that is not an array: views of the array that is laid on it then keep that array alive."""
    try:
        return mmap.mmap(-1, n_bytes, **PRIVATE)
    except OSError as error:
        raise MemoryError(f"no memory for an array of {n_bytes:,} bytes") from error


def _recycle(free, alive, memory, reference):
    del alive[id(reference)]
    free.append(memory)
