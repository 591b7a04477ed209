"""Rows of arrays, and loops over them. For ``out[:] = x``, numba would compile the text of an
error, for seconds.
"""

import numba
from numba.core.imputils import impl_ret_borrowed
from numba.extending import lower_builtin, type_callable

from npformer.cpu.jit import inlined


def contiguous(x):
    """x, a row of an array of any layout, whose numbers lie one after another: LLVM vectorises
    loops over it.
    """
    return x


@type_callable(contiguous)
def _type_of_contiguous(context):
    return lambda x: x.copy(layout="C")


@lower_builtin(contiguous, numba.types.Array)
def _compile_contiguous(context, builder, signature, arguments):
    return impl_ret_borrowed(context, builder, signature.return_type, arguments[0])


@inlined
def copy_row(x, out):
    """``out[:] = x``."""
    for j in range(len(out)):
        out[j] = x[j]


@inlined
def add_row(x, out):
    """``out += x``, or nothing if x is empty."""
    for j in range(len(x)):
        out[j] += x[j]
