"""How kernels are compiled. All flags for numba are set in this file."""

import gc
import time
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import numba
from llvmlite.binding.ffi import lib
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import overload

from npformer.cpu.kernel_cache import keep_on_disk, place_of
from npformer.files.locks import claimed
from npformer.progress import compiling
from npformer.runtime.forks import at_fork

# These flags let LLVM reorder sums and fuse a·b + c. The flags nnan and ninf must not be added:
# with them isnan is always False, and the masks rely on inf.
# With these flags infinities behave as in IEEE 754 (sqrt(inf), x / inf, x / 0, sums and products),
# with two exceptions:
# - In float32, 1 / sqrt(x) is computed as an estimate that is improved by Newton's method. The
#   result is NaN if x is 0 or inf, and may be wrong if x is below 1e-38. (sqrt(x) alone, or with
#   something added to it, is exact.)
# - A divisor that is constant in a loop is replaced by its reciprocal, which is inf for divisors
#   below 3e-39.
# Differences of large numbers need care, too: (x - a) - b may become x - (a + b); and x·a - b may
# be fused, so that x·a is not rounded and the result is not 0 where b is the rounded x·a. Storing
# x - a, or x·a, in an array in a separate loop prevents both.
FASTMATH = {"contract", "reassoc", "arcp", "nsz", "afn"}

KERNELS: dict = {}  # the compiled kernel of each function that was made one; none is ever deleted
# The list of (kernel, types) of a rehearsal that this thread makes, else None.
current_rehearsal: ContextVar = ContextVar("current_rehearsal", default=None)
LONGEST = 60.0  # seconds to wait at most for another process that compiles the same kernel
PAUSE = 0.05  # seconds between two looks whether it has ended


def kernel(function, forceinline=False, fastmath=FASTMATH, has_address=False):
    """Compile a function for this processor.

    It runs without the GIL, and is kept on disk if that is possible.
    """
    if numba.config.DISABLE_JIT:
        return function
    options = {
        "nogil": True,
        "fastmath": fastmath,
        "error_model": "numpy",
        "forceinline": forceinline,
        "no_cfunc_wrapper": not has_address,
    }
    compiled = numba.njit(**options)(function)
    if forceinline:  # a kernel that calls it takes it without its machine code
        part = numba.njit(**options | PART, no_cpython_wrapper=True)(function)
        compiled.get_call_template = part.get_call_template
        compiled.get_overload = part.get_overload
    keep_on_disk(compiled)
    KERNELS[function] = compiled
    compiled.compile = partial(_compile_or_load, compiled, compiled.compile)
    return compiled


def _compile_or_load(kernel, compile, types):
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


class _PartCompiler(Compiler):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.state.library = _Part(self.state.targetctx.codegen(), "part of a kernel")


PART = {"forceinline": True, "pipeline_class": _PartCompiler}  # options for numba


def inlined(function):
    """``kernel``, for a function that is inlined into each kernel that calls it.

    Every function that a kernel calls has to be inlined. Otherwise a process that compiles the
    kernel and one that loads it from disk may link it to different copies of the function, which
    may fuse a·b + c in different places: a resumed training would not reproduce the first one bit
    for bit.
    """
    return kernel(function, forceinline=True)


def if_given(function):
    """``inlined``, for a function whose last argument may be None: compiled only if it is not.

    Numba leaves out a branch ``if x is not None`` only if x is an argument of the kernel itself.
    """
    part = inlined(function)

    def call(*arguments):
        if arguments[-1] is not None:
            part(*arguments)

    @overload(call, jit_options=PART, strict=False)
    def compiled(*arguments):
        if isinstance(arguments[-1], numba.types.NoneType):
            return lambda *arguments: None
        return lambda *arguments: part(*arguments)

    return call


def exact(function):
    """``inlined``, with the arithmetic computed as written.

    Only a·b + c may be rounded once instead of twice.
    """
    return kernel(function, forceinline=True, fastmath={"contract"})


def address_of(function, signature):
    """Compile a function, and return the address at which C or another kernel can call it."""
    compiled = kernel(function, has_address=True)
    compiled.compile(signature)
    [result] = compiled.overloads.values()
    return result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)


def _before_fork():
    global_compiler_lock.acquire()
    lib._lock.__enter__()


def _after_fork():
    lib._lock.__exit__(None, None, None)
    global_compiler_lock.release()


# a fork waits until nothing is being compiled: a child could not finish it
at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
