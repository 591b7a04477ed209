"""Divide work among the cores.

The calling thread takes one part after another, and so do helpers that have a core.

Nobody waits for a thread that has not begun a part. So beside programs that keep the cores busy a
work takes as long as it would on one thread, or less, and on idle cores it is shared. The parts
depend on the sizes of the work alone, and each of their matrix products has one thread of BLAS, so
the results have the same bits on any number of threads.
"""

import ctypes
import math
import threading
from collections import deque
from contextlib import contextmanager, suppress
from contextvars import copy_context
from queue import SimpleQueue

from npformer.runtime.blas_threads import (
    blas_threads as blas_threads,
    one_blas_thread,
    user_threads,
)
from npformer.runtime.cores import cores
from npformer.runtime.forks import in_forked_process
from npformer.runtime.interrupts import deferred_interrupts

FEW_ROWS = 64  # the most rows of a product that is for ``npformer.cpu.few_rows``
WORTH_A_PART = 2**24  # the fewest multiplications of a part: a third of a millisecond
MOST_PARTS = 16  # of one matrix product


class _Here(threading.local):
    is_in_part = False  # whether this thread computes a part of ``in_parallel``
    n_kernel_threads = 0  # how many threads a kernel may use inside ``kernel_threads``, else 0


_here = _Here()
_helpers: list = []
_idle: deque = deque()  # the helpers that wait for work; the last has waited for the shortest time
_kernels_have_helpers = threading.Lock()
# How many helpers may look for pieces of kernels in a busy loop, that is, spin. They count as idle,
# but see a call only after the loop: who calls them for other work sets this to 0.
spinning_limit = ctypes.c_int64(0)


def n_threads():
    """Number of threads that compute at most: the cores, or fewer if the user limits those of BLAS.

    It is 1 inside a part of ``in_parallel``, and with another BLAS than OpenBLAS, whose own threads
    cannot be limited and would compete with ours.
    """
    return 1 if _here.is_in_part else min(cores(), user_threads() or 1)


def in_parallel(work, parts):
    """``[work(part) for part in parts]``, on this thread and on helpers that have a core.

    Each has one thread of BLAS.

    Work that releases the GIL (NumPy on large arrays, compiled kernels) becomes faster. The parts
    are begun in their order, each by whoever is free first; a part does not divide its own work
    again. An interrupt waits until all parts are done. After an error no other part begins, and it
    is raised when those that had begun have ended.

    Examples
    --------
    >>> in_parallel(lambda part: part**2, [1, 2, 3])
    [1, 4, 9]
    """
    if _here.is_in_part:
        return [work(part) for part in parts]
    with deferred_interrupts(), one_blas_thread():
        job = _Job(work, parts)
        if not _kernels_have_helpers.locked():  # else a thread that decodes needs them
            spinning_limit.value = 0
        call_helpers(min(n_threads(), len(parts)) - 1, job.help)
        return job.finish()


class _Job:
    """The parts of a work, which the caller and helpers take."""

    def __init__(self, work, parts):
        self.work = work
        self.results = [None] * len(parts)
        self.error = None
        self.untaken = iter(enumerate(parts))  # which all threads share
        self.context = copy_context()  # with the caller's settings of floating-point errors
        self.changed = threading.Condition()  # of what follows
        self.n_helping = 0
        self.is_over = False

    def help(self):
        """Take parts in another thread, unless the job is over by then; return how it leaves."""
        with self.changed:
            if self.is_over:
                return None
            self.n_helping += 1
        try:
            with one_blas_thread():
                self.context.copy().run(self._take_parts)
        except BaseException as error:  # outside of the work: the caller waits for this thread
            self.error = self.error or error
        return self._leave

    def _leave(self):
        """Let the caller go on."""
        with self.changed:
            self.n_helping -= 1
            self.changed.notify()

    def finish(self):
        """Take parts until none is left, wait for those that have begun, and return the results."""
        self._take_parts()
        with self.changed:
            self.is_over = True
            self.changed.wait_for(lambda: self.n_helping == 0)
        results = self.results
        error = self.error
        # A helper that has not begun still has the job, and would keep alive what it refers to.
        del self.work, self.results, self.error, self.untaken
        if error is not None:
            raise error
        return results

    def _take_parts(self):
        _here.is_in_part = True
        try:
            for i, part in self.untaken:
                if self.error is None:
                    self.results[i] = self.work(part)
        except BaseException as error:
            self.error = self.error or error
        finally:
            _here.is_in_part = False


class _Helper(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True, name="npformer-helper")
        self.calls: SimpleQueue = SimpleQueue()

    def run(self):
        while True:
            call = self.calls.get()
            leave = call()
            _idle.append(self)  # before the caller goes on, whose next work needs a helper
            if leave is not None:
                leave()
            del call, leave  # which may hold arrays


def call_helpers(n, function, n_at_work=0):
    """Let n helpers call a function, each when it has a core, less those that are at it already.

    They are fewer if some are at other work. When the helper is free again, it calls what the
    function has returned.
    """
    for _ in range(n - n_at_work):
        helper = _idle_helper(n)
        if helper is None:
            return
        helper.calls.put(function)


def _idle_helper(most):
    """A helper that waits for work, or a new one if there are fewer than ``most``, or None."""
    with suppress(IndexError):  # nobody is idle
        return _idle.pop()
    if len(_helpers) >= most:
        return None
    helper = _Helper()
    _helpers.append(helper)  # before the start, in which other threads may look for helpers
    try:
        helper.start()
    except RuntimeError:  # the interpreter is ending, or the system has no more threads
        _helpers.remove(helper)
        return None
    except BaseException:
        _helpers.remove(helper)
        raise
    return helper


def in_order(run, work, parts):
    """``run(work, parts)``, such as ``in_parallel``, whose parts wait for those before them.

    ``work(part, reached)`` calls ``reached()`` at each place, which returns when all parts before
    are at that place or further.

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
    n_reached: list[float] = [0] * len(parts)
    changed = threading.Condition()

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


def in_parts(work, n, fewest, size):
    """Call ``work(part)`` with slices of n rows or columns, in parallel if they take long enough.

    A part has at least ``fewest`` of them, each of which takes ``size`` multiplications.
    """
    parts = n_parts(n, fewest, size)
    if parts == 1:
        work(slice(0, n))
    else:
        in_parallel(work, even_slices(n, parts))


def n_parts(n, fewest, size):
    """The number of parts of ``in_parts``: a power of 2, and 1 inside a part.

    >>> n_parts(320, 256, 64 * 256), n_parts(800, 256, 512 * 2048)
    (1, 2)
    """
    if n < 2 * fewest or _here.is_in_part:  # first: small products are the most frequent
        return 1
    most = min(n // fewest, n * size // WORTH_A_PART, MOST_PARTS)
    return 2 ** (max(1, most).bit_length() - 1)


def even_slices(n, n_parts):
    """Slices of n items that divide them evenly.

    >>> even_slices(5, 2)
    [slice(0, 2, None), slice(2, 5, None)]
    """
    return [slice(n * i // n_parts, n * (i + 1) // n_parts) for i in range(n_parts)]


@contextmanager
def kernel_threads():
    """Context manager in which kernels of ``npformer.cpu.few_rows`` may have helpers.

    There are none while another Python thread is in such a block; the results are the same, bit for
    bit.

    Examples
    --------
    >>> with kernel_threads():
    ...     n_kernel_threads() == n_threads()
    True
    """
    if _here.is_in_part or _here.n_kernel_threads:
        yield
        return
    n = n_threads()
    lock = _kernels_have_helpers  # a fork replaces it
    is_first = lock.acquire(blocking=False)
    try:
        with one_blas_thread():
            _here.n_kernel_threads = n if is_first else 1
            yield
    finally:
        _here.n_kernel_threads = 0
        if is_first:
            lock.release()


def n_kernel_threads():
    """Number of threads that a kernel may use; 0 outside of ``kernel_threads``."""
    return 0 if _here.is_in_part else _here.n_kernel_threads


@in_forked_process
def _reset_in_fork():
    """Start without helpers in a forked process, which does not have them."""
    global _kernels_have_helpers
    _kernels_have_helpers = threading.Lock()
    _helpers.clear()
    _idle.clear()
    spinning_limit.value = 0
    _here.is_in_part = False
    _here.n_kernel_threads = 0
