"""Matrix products inside kernels, by the BLAS that NumPy is linked to.

A kernel that can call BLAS computes a whole sublayer without returning to Python: threads that compute different parts
of a batch then do not wait for the GIL between a product and the steps that follow it.
"""

import ctypes
from functools import cache

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic, lower_builtin, type_callable
from numba.np.arrayobj import make_array

from npformer.cpu.jit import inlined
from npformer.cpu.scalar import like
from npformer.runtime.blas_threads import linked_function

ROW_MAJOR, AS_IT_IS, TRANSPOSED = 101, 111, 112  # constants of CBLAS
SPELLINGS = (("64_", True), ("$NEWLAPACK$ILP64", True), ("", False))  # suffix, and whether its integers have 64 bits


def _find(name, number):
    """(address, whether integers have 64 bits) of a CBLAS function, or of one that takes its place."""
    for suffix, wide in SPELLINGS:
        function = linked_function(f"cblas_{name}{suffix}")
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value, wide
    return by_hand(number).address, True


@cache
def by_hand(number):
    """The product where NumPy has no BLAS; its arguments are those of ``cblas_?gemm``."""
    flag, integer, pointer = numba.int32, numba.int64, numba.types.CPointer(number)
    matrix = pointer, integer

    @numba.cfunc(numba.void(*[flag] * 3, *[integer] * 3, number, *matrix, *matrix, number, *matrix))
    def gemm(order, a_form, b_form, m, n, depth, alpha, a, a_step, b, b_step, beta, c, c_step):
        for i in range(m):
            for j in range(n):
                c[i * c_step + j] = beta * c[i * c_step + j] if beta != 0 else beta  # what is there may be NaN
            for k in range(depth):
                x = alpha * (a[i * a_step + k] if a_form == AS_IT_IS else a[k * a_step + i])
                for j in range(n):
                    c[i * c_step + j] += x * (b[k * b_step + j] if b_form == AS_IT_IS else b[j * b_step + k])

    return gemm


BLAS = {np.dtype(np.float32): _find("sgemm", numba.float32), np.dtype(np.float64): _find("dgemm", numba.float64)}


def multiply(blas, a, b, out, add):
    """out = a b, or out += a b if ``add``, rounded before a kernel subtracts from it.

    One axis of each matrix is contiguous; ``blas`` is ``BLAS[dtype]``.
    """
    out[...] = out + a @ b if add else a @ b


@type_callable(multiply)
def _type_of_multiply(context):
    return lambda blas, a, b, out, add: numba.void


@lower_builtin(multiply, *[numba.types.Any] * 5)
def _compile_multiply(context, builder, signature, arguments):
    """Compile ``_call_blas`` once for all layouts of the arrays: their values are alike, only their types differ."""
    kinds = [x.copy(layout="A") if isinstance(x, numba.types.Array) else x for x in signature.args]
    return context.compile_internal(builder, _call_blas, numba.void(*kinds), arguments)


def _call_blas(blas, a, b, out, add):
    (m, k), n = a.shape, b.shape[1]
    address, wide = blas
    alpha = like(a[0, 0], 1)
    beta = alpha if add else like(alpha, 0)
    a_form, a_step = _layout(m, k, a.strides, a.itemsize)
    b_form, b_step = _layout(k, n, b.strides, b.itemsize)
    step = max(out.strides[0] // out.itemsize, n)
    if wide:
        gemm_wide(address, a_form, b_form, m, n, k, alpha, a, a_step, b, b_step, beta, out, step)
    else:
        gemm_narrow(address, a_form, b_form, m, n, k, alpha, a, a_step, b, b_step, beta, out, step)


@inlined
def _layout(rows, columns, strides, itemsize):
    """Whether BLAS has to transpose a matrix, and its leading dimension: the step between rows, or columns if so."""
    if columns == 1 and strides[0] >= itemsize:  # the stride of an axis of length 1 has no meaning
        return AS_IT_IS, strides[0] // itemsize
    if strides[1] == itemsize and (rows == 1 or strides[0] >= columns * itemsize):
        return AS_IT_IS, max(strides[0] // itemsize, columns)
    return TRANSPOSED, max(strides[1] // itemsize, rows)


def _gemm(wide):
    """A call of ``cblas_?gemm`` at an address that is an argument of the kernel, so that the kernel can be cached."""
    integer, flag, pointer = ir.IntType(64 if wide else 32), ir.IntType(32), ir.IntType(8).as_pointer()

    @intrinsic
    def gemm(typing_context, address, a_form, b_form, m, n, k, alpha, a, a_step, b, b_step, beta, c, c_step):
        def generate(context, builder, signature, arguments):
            address, a_form, b_form, m, n, k, alpha, a, a_step, b, b_step, beta, c, c_step = (
                make_array(kind)(context, builder, x).data if isinstance(kind, numba.types.Array) else x
                for kind, x in zip(signature.args, arguments, strict=True)
            )
            real = beta.type
            parameters = [flag] * 3 + [integer] * 3 + [real, pointer, integer, pointer, integer, real, pointer, integer]
            given = [flag(ROW_MAJOR), a_form, b_form, m, n, k, alpha, a, a_step, b, b_step, beta, c, c_step]
            fitted = [_fit(builder, value, wanted) for value, wanted in zip(given, parameters, strict=True)]
            function = builder.inttoptr(address, ir.FunctionType(ir.VoidType(), parameters).as_pointer())
            builder.call(function, fitted)
            return context.get_dummy_value()

        integers = [numba.int64] * 6
        return numba.void(*integers, alpha, a, numba.int64, b, numba.int64, beta, c, numba.int64), generate

    return gemm


def _fit(builder, value, wanted):
    """Convert a value to the type that the function takes. Lengths come as 64-bit integers."""
    if value.type == wanted:
        return value
    if isinstance(wanted, ir.PointerType):
        return builder.bitcast(value, wanted)
    return builder.trunc(value, wanted)


gemm_wide, gemm_narrow = _gemm(wide=True), _gemm(wide=False)
