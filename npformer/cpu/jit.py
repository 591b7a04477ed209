"""How a function becomes a kernel, or a part of kernels. All flags for numba are set here.

===============  ==================================================================================
kernel           Python calls it.
inlined          Kernels call it; each has its instructions among its own.
exact            as ``inlined``, computed as written
if_given         as ``inlined``, but nothing is done if an argument is None
lowered          Kernels call it; what is decorated writes instructions of LLVM in its place.
compiled_once    Kernels call a compiled function in its place: a kernel has one copy of that.
address_of       C, or another kernel, calls it by its address.
===============  ==================================================================================

Of two functions that kernels call in its place, ``compiled_as`` (``scalar.py``) takes the one for
the dtype of an argument, and numba's ``overload`` one for the activation (``kernels/activations``).
"""

from functools import partial

import numba
from numba.extending import lower_builtin, overload, type_callable

from npformer.cpu.compiling import OnlyAsPart, compile_or_load
from npformer.cpu.kernel_cache import keep_on_disk

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
PART = {"forceinline": True, "pipeline_class": OnlyAsPart}  # options for numba


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
    # A kernel that calls it takes it without its machine code. What is set here, and what
    # compiling.py overrides, are internals of numba: tests/package/test_numba.py asks for them.
    if forceinline:
        part = numba.njit(**options | PART, no_cpython_wrapper=True)(function)
        compiled.get_call_template = part.get_call_template
        compiled.get_overload = part.get_overload
    keep_on_disk(compiled)
    KERNELS[function] = compiled
    compiled.compile = partial(compile_or_load, compiled, compiled.compile)
    return compiled


def inlined(function):
    """``kernel``, for a function that is inlined into each kernel that calls it.

    Every function that a kernel calls has to be inlined. Otherwise a process that compiles the
    kernel and one that loads it from disk may link it to different copies of the function, which
    may fuse a·b + c in different places: a resumed training would not reproduce the first one bit
    for bit.
    """
    return kernel(function, forceinline=True)


def if_given(function):
    """``inlined``, for a function of which arguments may be None: compiled only if none is.

    Numba leaves out a branch ``if x is not None`` only if x is an argument of the kernel itself.
    """
    part = inlined(function)

    def call(*arguments):
        if not any(x is None for x in arguments):
            part(*arguments)

    @overload(call, jit_options=PART, strict=False)
    def compiled(*arguments):
        if any(isinstance(x, numba.types.NoneType) for x in arguments):
            return lambda *arguments: None
        return lambda *arguments: part(*arguments)

    return call


def exact(function):
    """``inlined``, with the arithmetic computed as written.

    Only a·b + c may be rounded once instead of twice.
    """
    return kernel(function, forceinline=True, fastmath={"contract"})


def lowered(function, type_of_call, *kinds):
    """Decorate what appends the instructions of a function to a kernel that calls it.

    ``type_of_call`` returns the type of the result, given those of the arguments. ``kinds`` has a
    numba type for each argument, or a class of types: a kernel that passes anything else is not
    compiled. The function's own body is used only when the JIT is switched off, and shows what is
    computed.
    """

    @type_callable(function)
    def type_of(context):
        return type_of_call

    return lower_builtin(function, *kinds)


def compiled_once(function, compiled, type_of_call):
    """Let kernels call ``compiled`` where they name ``function``: a kernel has one copy of it for
    all calls, which is not inlined.
    """
    n_arguments = function.__code__.co_argcount

    @lowered(function, type_of_call, *[numba.types.Any] * n_arguments)
    def compile_call(context, builder, signature, arguments):
        return context.compile_internal(builder, compiled, signature, arguments)


def address_of(function, signature):
    """Compile a function, and return the address at which C or another kernel can call it."""
    compiled = kernel(function, has_address=True)
    compiled.compile(signature)
    [result] = compiled.overloads.values()
    return result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
