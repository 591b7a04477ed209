"""Matrix products inside kernels, by the BLAS that NumPy is linked to.

A kernel that can call BLAS computes a whole sublayer without returning to Python: threads that
compute different parts of a batch then do not wait for the GIL between a product and the steps that
follow it.
"""

import ctypes
from functools import cache

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from npformer.cpu.jit import compiled_once, inlined
from npformer.cpu.scalar import like
from npformer.runtime.blas_threads import linked_function

ROW_MAJOR, AS_IT_IS, TRANSPOSED = 101, 111, 112  # constants of CBLAS
# The suffix of the names of a BLAS, and whether its integers have 64 bits.
SPELLINGS = (("64_", True), ("$NEWLAPACK$ILP64", True), ("", False))


def _find(name, number):
    """(address, whether integers have 64 bits) of a CBLAS function, or of one in its place."""
    for suffix, wide in SPELLINGS:
        function = linked_function(f"cblas_{name}{suffix}")
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value, wide
    return by_hand(number).address, True


def _types_of_gemm(number, integer, a, b, c):
    """The types of the arguments of ``cblas_?gemm``, with those of the three matrices."""
    form = numba.int32
    sizes = [integer] * 3
    return form, form, form, *sizes, number, a, integer, b, integer, number, c, integer


@cache
def by_hand(number):
    """The product where NumPy has no BLAS; its arguments are those of ``cblas_?gemm``."""
    matrix = numba.types.CPointer(number)

    @numba.cfunc(numba.void(*_types_of_gemm(number, numba.int64, matrix, matrix, matrix)))
    def gemm(order, a_form, b_form, m, n, depth, alpha, a, a_step, b, b_step, beta, c, c_step):
        for i in range(m):
            for j in range(n):  # what is there may be NaN, also if it is not wanted
                c[i * c_step + j] = beta * c[i * c_step + j] if beta != 0 else beta
            for k in range(depth):
                x = alpha * (a[i * a_step + k] if a_form == AS_IT_IS else a[k * a_step + i])
                for j in range(n):
                    y = b[k * b_step + j] if b_form == AS_IT_IS else b[j * b_step + k]
                    c[i * c_step + j] += x * y

    return gemm


BLAS = {
    np.dtype(np.float32): _find("sgemm", numba.float32),
    np.dtype(np.float64): _find("dgemm", numba.float64),
}


def multiply(blas, a, b, out, add):
    """out = a b, or out += a b if ``add``, rounded before a kernel subtracts from it.

    One axis of each matrix is contiguous; ``blas`` is ``BLAS[dtype]``.
    """
    out[...] = out + a @ b if add else a @ b


def _call_blas(blas, a, b, out, add):
    m, k = a.shape
    n = b.shape[1]
    address, wide = blas
    one = like(a[0, 0], 1)
    beta = one if add else like(one, 0)
    a_form, a_step = _layout(m, k, a.strides, a.itemsize)
    b_form, b_step = _layout(k, n, b.strides, b.itemsize)
    step = max(out.strides[0] // out.itemsize, n)
    arguments = ROW_MAJOR, a_form, b_form, m, n, k, one, a, a_step, b, b_step, beta, out, step
    if wide:
        gemm_wide(address, *arguments)
    else:
        gemm_narrow(address, *arguments)


def _type_of_multiply(blas, a, b, out, add):
    """The layouts of the arrays are left open: the call is compiled once for all of them."""
    return numba.void(blas, *(x.copy(layout="A") for x in (a, b, out)), numba.boolean)


compiled_once(multiply, _call_blas, _type_of_multiply)


@inlined
def _layout(rows, columns, strides, itemsize):
    """Whether BLAS has to transpose a matrix, and its leading dimension: the step between rows, or
    columns if so.
    """
    if columns == 1 and strides[0] >= itemsize:  # the stride of an axis of length 1 has no meaning
        return AS_IT_IS, strides[0] // itemsize
    if strides[1] == itemsize and (rows == 1 or strides[0] >= columns * itemsize):
        return AS_IT_IS, max(strides[0] // itemsize, columns)
    return TRANSPOSED, max(strides[1] // itemsize, rows)


def _gemm(integer):
    """A call of ``cblas_?gemm`` at an address that is an argument of the kernel, so that the kernel
    can be cached.

    Numba converts the lengths to the integers of this BLAS.
    """

    @intrinsic
    def gemm(
        typing, address, order, a_form, b_form, m, n, k, alpha, a, a_step, b, b_step, beta, c, step
    ):
        def generate(context, builder, signature, arguments):
            address, *values = [
                make_array(kind)(context, builder, x).data if kind in (a, b, c) else x
                for kind, x in zip(signature.args, arguments, strict=True)
            ]
            function = ir.FunctionType(ir.VoidType(), [x.type for x in values])
            builder.call(builder.inttoptr(address, function.as_pointer()), values)
            return context.get_dummy_value()

        return numba.void(numba.int64, *_types_of_gemm(alpha, integer, a, b, c)), generate

    return gemm


gemm_wide = _gemm(numba.int64)
gemm_narrow = _gemm(numba.int32)
