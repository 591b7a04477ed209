"""Share the cores of the processor among threads: two pools of threads that are active at once wait for each other."""

import ctypes
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from pathlib import Path

import numpy as np

from npformer.checks import check_int
from npformer.runtime.forks import in_forked_process
from npformer.runtime.interrupts import deferred_interrupts

FEW_ROWS = 64  # up to this many rows, a product is not split by rows; ``npformer.cpu.team`` is made for such products
WORTH_A_PART = 2**23  # the fewest multiplications of a part of ``by_rows``: a tenth of a millisecond


class _Here(threading.local):
    in_parallel = False  # whether this thread runs a part of ``in_parallel``
    n_kernel_threads = 0  # how many threads a kernel may use inside ``kernel_threads``, else 0


_here = _Here()
_cores_taken = threading.Lock()
_blocks_lock = threading.RLock()  # which a signal handler may take again
_blocks: list = []  # the unfinished blocks of ``blas_threads``, in any thread; the first holds the number before them


def cores():
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_threads():
    """Number of threads that work may be split over: as many as matrix products use, unless the library limits them.

    Inside ``in_parallel`` it is 1.
    """
    if _here.in_parallel:
        return 1
    if _here.n_kernel_threads:
        return _here.n_kernel_threads
    get = openblas_function("get_num_threads")
    if not get:
        return 1  # another BLAS cannot be limited to 1 thread, and would compete with ours
    with _blocks_lock:  # another Python thread may have limited BLAS for its own work
        by_users = [block.n for block in _blocks if block.by_user]
    return min(cores(), by_users[-1] if by_users else get())


def in_parallel(work, parts):
    """``[work(part) for part in parts]`` on ``n_threads()`` Python threads, with one BLAS thread each.

    The parts are assigned to the threads in turn, independently of timing. Work that releases the GIL (NumPy on large
    arrays, compiled kernels) becomes faster. Everything runs on the calling thread if that thread already runs a part
    of another call, or while another thread uses the cores. Each of several parts is computed with one BLAS thread in
    any case, so the results are the same, bit for bit. An interrupt waits until all parts are done.

    Examples
    --------
    >>> in_parallel(lambda part: part**2, [1, 2, 3])
    [1, 4, 9]
    """
    if _here.in_parallel or len(parts) < 2:
        return [work(part) for part in parts]
    with deferred_interrupts(), _free_cores(min(n_threads(), len(parts))) as free:
        return _spread(work, parts, free)


def in_order(run, work, parts):
    """``run(work, parts)``, such as ``in_parallel``, where a part waits for the parts before it at places of its work.

    ``work(part, reached)`` calls ``reached()`` at each place, which returns when all parts before are at that place or
    further.

    Examples
    --------
    >>> written = [None] * 3
    >>> def work(part, reached):
    ...     written[part] = 10 * part
    ...     reached()
    ...     return sum(written[:part])
    >>> in_order(in_parallel, work, [0, 1, 2])
    [0, 0, 10]
    """
    n_reached, changed = [0] * len(parts), threading.Condition()

    def end(which):
        with changed:
            for i in which:
                n_reached[i] = math.inf
            changed.notify_all()

    def run_part(i):
        def reached():
            with changed:
                n_reached[i] += 1
                changed.notify_all()
                changed.wait_for(lambda: all(n >= n_reached[i] for n in n_reached[:i]))

        try:
            result = work(parts[i], reached)
        except BaseException:
            end(range(len(parts)))  # nobody waits any more, as parts may not even begin
            raise
        end([i])
        return result

    return run(run_part, range(len(parts)))


def by_rows(work, n_rows, size):
    """Call ``work(rows)`` with slices of ``n_rows`` rows, in parallel if there are many products of ``size`` numbers.

    It is for large products outside of ``in_parallel``. BLAS could use all threads itself, but they then keep the cores
    busy for a tenth of a second, wait for each other, and leave what is around the products to one thread.
    """
    n = 1 if _here.in_parallel or n_rows <= FEW_ROWS else min(n_threads(), n_rows * size // WORTH_A_PART)
    if n < 2:
        work(slice(0, n_rows))
    else:
        in_parallel(work, even_slices(n_rows, n))


def even_slices(n, n_parts):
    """Slices of n items that divide them evenly.

    >>> even_slices(5, 2)
    [slice(0, 2, None), slice(2, 5, None)]
    """
    return [slice(n * i // n_parts, n * (i + 1) // n_parts) for i in range(n_parts)]


@contextmanager
def _free_cores(n):
    """Take ``n`` cores until the end of the block, or only 1 while another thread has taken several."""
    lock = _cores_taken  # a fork replaces it
    taken = n > 1 and lock.acquire(blocking=False)
    try:
        yield n if taken else 1
    finally:
        if taken:
            lock.release()


def _spread(work, parts, n):
    results = [None] * len(parts)

    def run(thread):
        _here.in_parallel = True
        try:
            for i in range(thread, len(parts), n):
                results[i] = work(parts[i])
        finally:
            _here.in_parallel = False

    with one_blas_thread():
        others = []
        try:
            for thread in range(1, n):
                try:
                    others.append(_pool(thread).submit(copy_context().run, run, thread))
                except RuntimeError:  # the main thread has ended, and with it all pools
                    run(thread)
            run(0)
        finally:
            errors = [other.exception() for other in others]  # waits for all
    for error in filter(None, errors):
        raise error
    return results


@cache
def _pool(thread):
    """A pool of one thread, always the same for the same number, so that the memory it recycles fits its next part."""
    return ThreadPoolExecutor(1, thread_name_prefix=f"npformer-{thread}")


@in_forked_process
def _reset_in_fork():
    """Reset the state in a forked process, which inherits only the thread that forked."""
    global _cores_taken, _blocks_lock
    _blocks_lock = threading.RLock()
    if _blocks:  # the blocks of other threads will not end in this process
        _blocks[1:] = [block for block in _blocks[1:] if block.thread == threading.get_ident()]
        openblas_function("set_num_threads", None)(_n_of_blas())
    _cores_taken, _here.in_parallel, _here.n_kernel_threads = threading.Lock(), False, 0
    _pool.cache_clear()


def _n_of_blas():
    """The number of threads that BLAS has to use: 1 while the library itself needs that in any thread."""
    return _blocks[-1].n if all(block.by_user for block in _blocks) else 1


class blas_threads:
    """Context manager in which NumPy's matrix products use ``n`` threads; afterwards they use as many as before.

    Small products are not faster with a second thread, and much slower if another program uses the cores, because the
    threads wait for each other at every product. (Measured on two cores: the quick copy preset takes 15 s with one
    thread or two on idle cores; while two other processes use the cores, 52 s with one thread, more than 8 minutes with
    two.)

    This works with the OpenBLAS that NumPy is linked to, and has no effect with another library.

    Parameters
    ----------
    n : int or None
        None changes nothing.

    Examples
    --------
    >>> with blas_threads(1):
    ...     product = np.ones((3, 3)) @ np.ones((3, 3))
    """

    by_user = True

    def __init__(self, n):
        self.n = n if n is None else check_int("n", n, at_least=1, at_most=2**31 - 1)

    def __enter__(self):
        get, set_to = openblas_function("get_num_threads"), openblas_function("set_num_threads", None)
        if self.n is None or get is None:
            return
        self.thread = threading.get_ident()
        try:
            with deferred_interrupts(), _blocks_lock:
                if not _blocks:
                    _blocks.append(blas_threads(get()))  # the number before the first block
                _blocks.append(self)
                set_to(_n_of_blas())
        except BaseException:  # an interrupt, after which nobody would end this block
            self.__exit__()
            raise

    def __exit__(self, *exception):
        with deferred_interrupts(), _blocks_lock:
            if self in _blocks:
                _blocks.remove(self)
                openblas_function("set_num_threads", None)(_n_of_blas())
                if len(_blocks) == 1:
                    _blocks.clear()


class one_blas_thread(blas_threads):
    """``blas_threads(1)`` for the library's own work, which does not change ``n_threads``, here or in other threads."""

    by_user = False

    def __init__(self):
        super().__init__(1)


@contextmanager
def kernel_threads():
    """Context manager for kernels with threads of their own: they may use all threads, and matrix products use one.

    The kernels may use as many threads as matrix products used before, or one while another Python thread uses the
    cores; the results are the same, bit for bit.

    A thread of OpenBLAS keeps a core busy for a tenth of a second after a product and slows down other threads.
    Decoding a sentence takes about as long, so it would be half as fast after a single product on two threads.

    Examples
    --------
    >>> n = n_threads()
    >>> with kernel_threads():
    ...     n_threads() == n
    True
    """
    if _here.in_parallel or _here.n_kernel_threads:
        yield
        return
    with _free_cores(n_threads()) as free, one_blas_thread():
        _here.n_kernel_threads = free
        try:
            yield
        finally:
            _here.n_kernel_threads = 0


def n_kernel_threads():
    """Number of threads that a kernel may use; 0 outside of ``kernel_threads``."""
    return 0 if _here.in_parallel else _here.n_kernel_threads


def openblas_function(name, restype=ctypes.c_int):
    """The function ``openblas_<name>`` of the library that NumPy is linked to, or None if it is not OpenBLAS."""
    for suffix in ("64_", "_64", ""):
        function = linked_function(f"openblas_{name}{suffix}")
        if function is not None:
            function.restype = restype
            return function
    return None


@cache
def linked_function(name):
    """A C function of the libraries that NumPy is linked to, with or without the prefix of NumPy's wheels, or None."""
    extension = np._core._multiarray_umath.__file__  # the lookup includes the libraries that it is linked to
    on_windows = (Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*.dll")  # except on Windows
    for path in (extension, *on_windows):
        library = ctypes.CDLL(str(path))
        for prefix in ("scipy_", ""):
            function = getattr(library, f"{prefix}{name}", None)
            if function is not None:
                return function
    return None
