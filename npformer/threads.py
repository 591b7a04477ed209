"""Who uses the processor's cores: one owner at a time.

Either matrix products own them, each split over the threads of BLAS, or Python threads do, each running products on a
single thread: two pools at once wait for each other.
"""

import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from pathlib import Path

import numpy as np

FEW_ROWS = 64  # of a matrix product whose rows are not worth a thread each; what ``npformer.cpu.team`` is good at


class _Here(threading.local):
    in_parallel = False  # whether this thread is one of several at work
    n_kernel_threads = 0  # how many threads kernels may have, inside kernel_threads


_here = _Here()
_cores_taken = threading.Lock()
_asking = threading.Lock()
_asked: list = []  # how many threads of BLAS were asked for, by blocks that have not ended, in any Python thread


def cores():
    """How many cores this process may use.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_threads():
    """How many threads work may be split over here: as many as matrix products use, 1 inside ``in_parallel``."""
    if _here.in_parallel:
        return 1
    if _here.n_kernel_threads:
        return _here.n_kernel_threads
    get = openblas_function("get_num_threads")
    return min(cores(), get()) if get else 1  # threads of a BLAS that cannot be told to use one would fight with ours


def in_parallel(work, parts):
    """``[work(part) for part in parts]`` over ``n_threads()`` Python threads, with one BLAS thread each.

    The parts go to the threads in turn, in an order that does not depend on time. Work that releases the GIL (NumPy
    on large arrays, compiled kernels) gets faster by it. Work that is already one of several parts, and that of a
    second thread that wants the cores while they are taken, stays on its own thread.

    Parameters
    ----------
    work : callable
    parts : sequence

    Returns
    -------
    list
        What ``work`` returned, in the order of the parts.

    Examples
    --------
    >>> in_parallel(lambda part: part**2, [1, 2, 3])
    [1, 4, 9]
    """
    n = min(n_threads(), len(parts))
    if n <= 1 or not _cores_taken.acquire(blocking=False):
        return [work(part) for part in parts]
    try:
        return _spread(work, parts, n)
    finally:
        _cores_taken.release()


def _spread(work, parts, n):
    results = [None] * len(parts)

    def run(thread):
        _here.in_parallel = True
        try:
            for i in range(thread, len(parts), n):
                results[i] = work(parts[i])
        finally:
            _here.in_parallel = False

    with blas_threads(1):
        others = [_pool(thread).submit(copy_context().run, run, thread) for thread in range(1, n)]
        try:
            run(0)
        finally:
            errors = [other.exception() for other in others]  # waits for all
    for error in filter(None, errors):
        raise error
    return results


@cache
def _pool(thread):
    """One thread, the same for the same number, so that what it keeps (recycled memory) fits its next work."""
    return ThreadPoolExecutor(1, thread_name_prefix=f"npformer-{thread}")


def _begin_anew():
    """In a forked process, which has none of its parent's threads."""
    global _cores_taken, _asking
    _asking = threading.Lock()
    _cores_taken, _here.in_parallel, _here.n_kernel_threads = threading.Lock(), False, 0
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def blas_threads(n):
    """Inside, NumPy's matrix products use ``n`` threads; afterwards as many as before.

    Small products gain nothing from a second thread, and lose much when another program wants the cores: the
    threads wait for each other at every product. (Measured: the quick copy preset takes 15 s with one thread or
    two on two idle cores; beside two other busy processes 52 s with one, more than 8 minutes with two.)

    Works with the OpenBLAS that NumPy is linked to; with another library nothing changes.

    Parameters
    ----------
    n : int or None
        None leaves everything as it is.

    Examples
    --------
    >>> with blas_threads(1):
    ...     product = np.ones((3, 3)) @ np.ones((3, 3))
    """
    if n is not None and n < 1:
        raise ValueError(f"n={n}, expected at least 1 thread, or None")
    get, set_to = openblas_function("get_num_threads"), openblas_function("set_num_threads", None)
    if n is None or get is None:
        yield
        return
    asked = [n]  # a list is itself only, so that each ``with`` block takes back its own wish
    with _asking:
        if not _asked:
            _asked.append([get()])  # what there was before all
        _asked.append(asked)
        set_to(n)
    try:
        yield
    finally:
        with _asking:
            _asked[:] = [others for others in _asked if others is not asked]
            set_to(_asked[-1][0])
            if len(_asked) == 1:
                _asked.clear()


@contextmanager
def kernel_threads():
    """Inside, matrix products use one thread, and kernels that have threads of their own all that products had before.

    Where another Python thread has the cores, nothing changes.

    A thread of OpenBLAS stays awake for a tenth of a second after a product, in the way of any other thread: decoding
    a sentence, which takes as long, would be half as fast after a single product on two threads.

    Examples
    --------
    >>> n = n_threads()
    >>> with kernel_threads():
    ...     n_threads() == n
    True
    """
    if not _cores_taken.acquire(blocking=False):  # by another thread, or by this one, further out
        yield
        return
    n = n_threads()
    try:
        with blas_threads(1):
            _here.n_kernel_threads = n
            yield
    finally:
        _here.n_kernel_threads = 0
        _cores_taken.release()


def n_kernel_threads():
    """How many threads a kernel may have: 0 outside ``kernel_threads``."""
    return 0 if _here.in_parallel else _here.n_kernel_threads


def openblas_function(name, restype=ctypes.c_int):
    """``openblas_<name>`` of the library that NumPy is linked to, or None if that is not OpenBLAS."""
    for suffix in ("64_", "_64", ""):
        function = linked_function(f"openblas_{name}{suffix}")
        if function is not None:
            function.restype = restype
            return function
    return None


@cache
def linked_function(name):
    """A C function of the libraries that NumPy is linked to, with the prefix of NumPy's wheels or without, or None."""
    extension = np._core._multiarray_umath.__file__  # a name is looked for in what it is linked to, too
    on_windows = (Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*.dll")  # where it is not
    for path in (extension, *on_windows):
        library = ctypes.CDLL(str(path))
        for prefix in ("scipy_", ""):
            function = getattr(library, f"{prefix}{name}", None)
            if function is not None:
                return function
    return None
