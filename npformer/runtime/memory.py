"""Arrays whose memory is reused once they are garbage-collected.

A training step allocates the same arrays as the step before, and new memory from the system costs a
page fault per 4 KB, more than the arithmetic of many kernels. So the memory of an array that is
freed goes to a list, from which the next array of about the same size takes it.
"""

import itertools
import math
import mmap
import threading
import weakref
from collections import defaultdict
from functools import partial

import numpy as np

LINE = 64  # bytes of a cache line
SMALLEST = 2**18  # bytes; smaller arrays are left to malloc, which reuses memory itself (see below)
TRIED = 4  # sizes in which free memory is looked for, up to twice the size needed
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
PAGE = 4096
COLOURS = itertools.cycle(range(0, PAGE, 5 * LINE))  # offsets: equal ones would share a cache set

# The malloc of glibc returns the free end of its heap to the system, unless it is smaller than
# twice the largest block that the program ever freed. Freeing this array raises the limit to 32 MB.
# (Without it, a step of 10 ms spent more than 1 ms on requesting the returned memory again.)
np.empty(2**24, np.uint8)


class _Pool(threading.local):  # one per thread: a thread reuses memory that is in its cache
    def __init__(self):
        self.free = defaultdict(list)
        self.alive = {}  # weak references to the arrays in use: one that is gone does not call back


_pool = _Pool()


def empty(shape, dtype):
    """An array with arbitrary contents, like ``numpy.empty``."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes < SMALLEST:
        return np.empty(shape, dtype)
    memory, size = _memory(n_bytes)
    array = np.ndarray(shape, dtype, memory, next(COLOURS))
    reference = weakref.ref(array, partial(_recycle, _pool.free[size], _pool.alive, memory))
    _pool.alive[id(reference)] = reference
    return array


def empty_parts(sizes, dtype):
    """Vectors of these lengths, one after another in one array, which begins with a line.

    Their contents are arbitrary.
    """
    edges = [0, *itertools.accumulate(sizes)]
    whole = empty((edges[-1] + LINE // dtype.itemsize,), dtype)
    whole = whole[-whole.ctypes.data % LINE // dtype.itemsize :]
    return [whole[start:end] for start, end in itertools.pairwise(edges)]


def zeros(shape, dtype):
    """An array of zeros, like ``numpy.zeros``."""
    x = empty(shape, dtype)
    x.fill(0)
    return x


def _memory(n_bytes):
    """Memory for at least ``n_bytes`` bytes, and its size class: four for each power of two."""
    step = 2 ** (n_bytes.bit_length() - 3)
    smallest = -(-n_bytes // step) * step
    for size in range(smallest, smallest + TRIED * step, step):
        if _pool.free[size]:
            return _pool.free[size].pop(), size
    for size, free in _pool.free.items():
        if size < smallest:  # arrays have become larger: the smaller memory may never be used again
            free.clear()
    return _pages(smallest + PAGE), smallest


def _pages(n_bytes):
    """New memory, which is not an array: so views of an array on it keep that array alive."""
    try:
        return mmap.mmap(-1, n_bytes, **PRIVATE)
    except OSError as error:
        raise MemoryError(f"no memory for an array of {n_bytes:,} bytes") from error


def _recycle(free, alive, memory, reference):
    del alive[id(reference)]
    free.append(memory)
