"""Matrix products inside kernels, by the BLAS that NumPy is linked to.

A kernel that can call BLAS computes a whole sublayer without returning to Python: threads that compute different parts
of a batch then do not wait for the GIL between a product and the steps that follow it.
"""

import ctypes

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic, overload

from npformer.cpu.jit import kernel
from npformer.threads import linked_function

ROW_MAJOR, AS_IT_IS, TRANSPOSED = 101, 111, 112  # constants of CBLAS
SPELLINGS = (("64_", True), ("$NEWLAPACK$ILP64", True), ("", False))  # suffix, and whether its integers have 64 bits


def _find(name):
    """(address, whether integers have 64 bits) of a CBLAS function; the address is 0 if NumPy has no BLAS."""
    for suffix, wide in SPELLINGS:
        function = linked_function(f"cblas_{name}{suffix}")
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value, wide
    return 0, False


BLAS = {np.dtype(np.float32): _find("sgemm"), np.dtype(np.float64): _find("dgemm")}


def multiply(blas, a, b, out, add):
    """out = a b, or out += a b if ``add``. One axis of each matrix is contiguous; ``blas`` is ``BLAS[dtype]``."""
    out[...] = out + a @ b if add else a @ b


@overload(multiply)
def _multiply(blas, a, b, out, add):
    number = np.float32 if a.dtype == numba.float32 else np.float64
    gemm_wide, gemm_narrow = GEMM[a.dtype, True], GEMM[a.dtype, False]
    zero, one = number(0), number(1)

    def multiply(blas, a, b, out, add):
        (m, k), n = a.shape, b.shape[1]
        address, wide = blas
        if address == 0:
            _multiply_by_hand(a, b, out, add)
            return
        beta = one if add else zero
        a_form, a_step = _layout(a)
        b_form, b_step = _layout(b)
        c, c_step = out.ctypes.data, max(out.strides[0] // out.itemsize, n)
        if wide:
            gemm_wide(address, a_form, b_form, m, n, k, a.ctypes.data, a_step, b.ctypes.data, b_step, beta, c, c_step)
        else:
            gemm_narrow(address, a_form, b_form, m, n, k, a.ctypes.data, a_step, b.ctypes.data, b_step, beta, c, c_step)

    return multiply


@kernel
def _multiply_by_hand(a, b, out, add):
    """``multiply`` without a BLAS."""
    for i in range(len(a)):
        if not add:
            out[i, :] = 0
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                out[i, j] += a[i, k] * b[k, j]


@numba.njit
def _layout(x):
    """Whether BLAS has to transpose a matrix, and its leading dimension: the step between rows, or columns if so."""
    rows, columns = x.shape
    if columns == 1 and x.strides[0] >= x.itemsize:  # the stride of an axis of length 1 has no meaning
        return AS_IT_IS, x.strides[0] // x.itemsize
    if x.strides[1] == x.itemsize and (rows == 1 or x.strides[0] >= columns * x.itemsize):
        return AS_IT_IS, max(x.strides[0] // x.itemsize, columns)
    return TRANSPOSED, max(x.strides[1] // x.itemsize, rows)


def _gemm(number, wide):
    """A call of ``cblas_?gemm`` at an address that is an argument of the kernel, so that the kernel can be cached."""
    integer, flag = ir.IntType(64 if wide else 32), ir.IntType(32)
    real, pointer = (ir.FloatType() if number == numba.float32 else ir.DoubleType()), ir.IntType(8).as_pointer()
    parameters = [flag] * 3 + [integer] * 3 + [real, pointer, integer, pointer, integer, real, pointer, integer]

    @intrinsic
    def gemm(typing_context, address, a_form, b_form, m, n, k, a, a_step, b, b_step, beta, c, c_step):
        def generate(context, builder, signature, arguments):
            address, a_form, b_form, m, n, k, a, a_step, b, b_step, beta, c, c_step = arguments
            given = [flag(ROW_MAJOR), a_form, b_form, m, n, k, real(1), a, a_step, b, b_step, beta, c, c_step]
            fitted = [_fit(builder, value, wanted) for value, wanted in zip(given, parameters, strict=True)]
            function = builder.inttoptr(address, ir.FunctionType(ir.VoidType(), parameters).as_pointer())
            builder.call(function, fitted)
            return context.get_dummy_value()

        integers = [numba.int64] * 6
        signature = numba.void(
            *integers, numba.intp, numba.int64, numba.intp, numba.int64, number, numba.intp, numba.int64
        )
        return signature, generate

    return gemm


def _fit(builder, value, wanted):
    """Convert a value to the type that the function takes. Addresses and lengths come as 64-bit integers."""
    if value.type == wanted:
        return value
    if isinstance(wanted, ir.PointerType):
        return builder.inttoptr(value, wanted)
    return builder.trunc(value, wanted)


GEMM = {(number, wide): _gemm(number, wide) for number in (numba.float32, numba.float64) for wide in (True, False)}
