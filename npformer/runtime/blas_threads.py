"""How many threads BLAS has in NumPy: one while npformer computes, else what the user says.

The threads of BLAS wait for each other at every product. On a machine that does something else,
too, one of them often has no core, and the others wait until it gets one back: a training of small
matrices then takes many times as long. So npformer divides work among threads itself
(``threads.py``), where it is worth it, and BLAS has one.
"""

import ctypes
import threading
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import get_ident

import numpy as np

from npformer.checks import check_int
from npformer.runtime.forks import at_fork
from npformer.runtime.interrupts import deferred_interrupts

_lock = threading.RLock()  # on all that follows; a signal handler may take it again
computing: dict = {}  # the identifiers of the threads inside ``one_blas_thread``
_of_user: int | None = None  # the number that the user gave BLAS, while it has one thread
_blocks: list = []  # the unfinished blocks of ``blas_threads``, in any thread
_before_blocks: int | None = None  # the number of the user before the first of them


class one_blas_thread:
    """Context manager for npformer's own work: a product has one thread, in all Python threads.

    Afterwards BLAS has the number that the user gave it. A block inside another one of the same
    thread does nothing.

    Examples
    --------
    >>> with one_blas_thread():
    ...     product = np.ones((3, 3)) @ np.ones((3, 3))
    """

    __slots__ = ("is_outermost",)

    def __enter__(self):
        thread = get_ident()
        self.is_outermost = thread not in computing
        if self.is_outermost:
            computing[thread] = None
            try:
                _set()
            except BaseException:  # an interrupt, after which nobody would end this block
                self.__exit__()
                raise

    def __exit__(self, *exception):
        if self.is_outermost:
            computing.pop(get_ident(), None)
            _set()


def _set():
    """Give BLAS one thread if a thread computes, else the number of the user."""
    global _of_user
    get, set_to = _functions()
    if get is None:
        return
    with _lock:
        if computing:
            n = get()
            if n > 1:
                _of_user = _of_user or n
                set_to(1)
        elif _of_user is not None:
            n = _of_user
            _of_user = None  # before the call: after an interrupt of it, the number is set
            set_to(n)


def user_threads():
    """The number of threads that the user gives BLAS, or None if it is not OpenBLAS."""
    get, _ = _functions()
    if get is None:
        return None
    with _lock:
        return _of_user or get()


def _give_user(n):
    global _of_user
    if _of_user is None and not computing:
        _functions()[1](n)
    else:
        _of_user = n


class blas_threads:
    """Context manager that limits the threads of npformer, and of each matrix product of NumPy.

    It is for programs of several processes that share the cores, and for measurements; small work
    needs no limit, as it takes one thread in any case. It works with the OpenBLAS that NumPy is
    linked to. With another library npformer uses one thread, and this has no effect.

    Parameters
    ----------
    n : int or None
        None changes nothing.

    Examples
    --------
    >>> with blas_threads(1):
    ...     product = np.ones((3, 3)) @ np.ones((3, 3))
    """

    def __init__(self, n):
        self.n = n if n is None else check_int("n", n, at_least=1, at_most=2**31 - 1)

    def __enter__(self):
        global _before_blocks
        before = user_threads()
        if self.n is None or before is None:
            return
        self.thread = get_ident()
        try:
            with deferred_interrupts(), _lock:
                if not _blocks:
                    _before_blocks = before
                _blocks.append(self)
                _give_user(self.n)
        except BaseException:  # an interrupt, after which nobody would end this block
            self.__exit__()
            raise

    def __exit__(self, *exception):
        with deferred_interrupts(), _lock:
            if self in _blocks:
                _blocks.remove(self)
                _give_user(_by_blocks())


def limit_blas_threads(n):
    """Limit the threads as ``blas_threads`` does, until the process ends."""
    global _before_blocks
    if user_threads() is None:
        return
    with deferred_interrupts(), _lock:
        _before_blocks = n  # what the end of a block gives back
        _give_user(n)


def _by_blocks():
    """The number that the last block gives BLAS, or, after all blocks, the number before them."""
    return _blocks[-1].n if _blocks else _before_blocks


def _forget_other_threads():
    """Release the lock in a forked process, which has no other threads that compute.

    Nothing of BLAS is called here: if a thread of the parent was in BLAS, its locks are taken for
    ever. So BLAS goes on with the number that it had in the parent until this process has computed
    something.
    """
    global _of_user
    for thread in list(computing):
        if thread != get_ident():
            del computing[thread]
    if _blocks:
        for block in list(_blocks):
            if block.thread != get_ident():
                _blocks.remove(block)
        _of_user = _by_blocks()
    _lock.release()


at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget_other_threads)


@cache
def _functions():
    """How to get and set OpenBLAS's number of threads; None and None with another BLAS."""
    return openblas_function("get_num_threads"), openblas_function("set_num_threads", None)


def openblas_function(name, restype=ctypes.c_int):
    """The function ``openblas_<name>`` that NumPy is linked to, or None if it has another BLAS."""
    for suffix in ("64_", "_64", ""):
        function = linked_function(f"openblas_{name}{suffix}")
        if function is not None:
            function.restype = restype
            return function
    return None


@cache
def linked_function(name):
    """A C function of the libraries that NumPy is linked to, or None.

    NumPy's wheels have a prefix before its name.
    """
    # A lookup in an extension includes the libraries that it is linked to, except on Windows.
    extension = import_module("numpy._core._multiarray_umath").__file__
    on_windows = (Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*.dll")
    for path in (extension, *on_windows):
        library = ctypes.CDLL(str(path))
        for prefix in ("scipy_", ""):
            function = getattr(library, f"{prefix}{name}", None)
            if function is not None:
                return function
    return None
