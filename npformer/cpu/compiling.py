"""What happens when a kernel is compiled: one process does it for all, and what is inlined into a
kernel gets no machine code of its own.
"""

import gc
import time
from contextlib import contextmanager
from contextvars import ContextVar

from llvmlite.binding.ffi import lib
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock

from npformer.cpu.kernel_cache import place_of
from npformer.files.locks import claimed
from npformer.runtime.compilations import compiling
from npformer.runtime.forks import at_fork

# The list of (kernel, types) of a rehearsal that this thread makes, else None.
current_rehearsal: ContextVar = ContextVar("current_rehearsal", default=None)
LONGEST = 60.0  # seconds to wait at most for another process that compiles the same kernel
PAUSE = 0.05  # seconds between two looks whether it has ended


def compile_or_load(kernel, compile, types):
    """Compile a kernel for arguments of these types, or load it from disk.

    If another process is compiling it, this waits until its file is there. In a rehearsal, a kernel
    that is not on disk is noted, and ``does_nothing`` takes its place.
    """
    place = place_of(kernel, types)
    if place is not None:
        if place.is_filled():
            return compile(types)
        rehearsal = current_rehearsal.get()
        if rehearsal is not None:
            rehearsal.append((kernel, types))
            return does_nothing
    with compiling(_shown(kernel.py_func)), _claim(place), _no_garbage_collection():
        return compile(types)


def does_nothing(*arguments):
    """What a rehearsal calls in place of a kernel that is not compiled."""


@contextmanager
def _claim(place):
    """Claim the place of a kernel, if it has one, as soon as no other process has claimed it.

    After ``LONGEST`` seconds the kernel is compiled in any case: the other process may be stopped.
    """
    deadline = time.monotonic() + LONGEST
    while place is not None:
        with claimed(place.path) as is_free:
            if is_free or time.monotonic() > deadline:
                yield
                return
        time.sleep(PAUSE)
    yield


@contextmanager
def _no_garbage_collection():
    """Without this, Python looks at millions of numba's objects again and again."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


def _shown(function):
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


# These classes override internals of numba: tests/package/test_numba.py asks for them.


class _Part(JITCodeLibrary):
    """The code of a function for the kernels that it is inlined into, without machine code."""

    def _optimize_final_module(self):
        """The kernel that takes it optimizes it."""

    def _finalize_final_module(self):
        self._finalized = True

    def get_pointer_to_function(self, name):
        self._ensure_finalized()
        return 0

    @property
    def codegen(self):
        return self

    def set_env(self, name, environment):
        """Numba would write into the machine code."""


class OnlyAsPart(Compiler):
    """Compile a function for the kernels that it is inlined into."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.state.library = _Part(self.state.targetctx.codegen(), "part of a kernel")


def _before_fork():
    global_compiler_lock.acquire()
    lib._lock.__enter__()


def _after_fork():
    lib._lock.__exit__(None, None, None)
    global_compiler_lock.release()


# A fork waits until nothing is being compiled: a child could not finish it.
at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
