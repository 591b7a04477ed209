"""A stand-in for cuBLAS: the calls that npformer makes, from the same addresses, steps and flags, by NumPy."""

import ctypes

import numpy as np

cupy = None  # the other stand-in, which knows whether calls are recorded
DTYPES = {0: "float32", 1: "float64", 2: "float16", 14: "bfloat16"}  # the last needs ml_dtypes


def cublasCreate_v2(handle):  # noqa: N802
    return 0


def cublasSetStream_v2(handle, stream):  # noqa: N802
    return 0


def cublasSetWorkspace_v2(handle, address, size):  # noqa: N802
    return 0


def cublasGemmStridedBatchedEx(*arguments):  # noqa: N802
    if cupy.recorded is None:
        _multiply(*arguments)
    else:
        cupy.recorded.append(lambda: _multiply(*arguments))
    return 0


@np.errstate(all="ignore")
def _multiply(
    handle, transa, transb, m, n, k, alpha, a, atype, lda, stridea, b, btype, ldb, strideb, beta, c, ctype, ldc,
    stridec, batch, compute, algorithm,
):  # fmt: skip
    """Columns are what is contiguous: A (m, k) after its operation, B (k, n), C (m, n)."""
    for op, step, size in ((transa, lda, (m, k)), (transb, ldb, (k, n)), (0, ldc, (m, n))):
        assert step >= size[op], "a leading dimension that is too small"
    a = _matrices(a, atype, (m, k), transa, lda, stridea, batch)
    b = _matrices(b, btype, (k, n), transb, ldb, strideb, batch)
    out = _matrices(c, ctype, (m, n), 0, ldc, stridec, batch)
    wide = np.float64 if ctype == 1 else np.float32
    product = (a.astype(wide) @ b.astype(wide)) * alpha._obj.value
    out[...] = product if beta._obj.value == 0 else product + beta._obj.value * out.astype(wide)


def _matrices(address, kind, shape, op, step, between, batch):
    dtype = np.dtype(DTYPES[kind])
    rows, columns = shape if op == 0 else shape[::-1]
    size = (batch - 1) * between + (columns - 1) * step + rows
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
    strides = tuple(dtype.itemsize * x for x in (between, 1, step))
    x = np.ndarray((batch, rows, columns), dtype, memory, 0, strides)
    return x if op == 0 else x.swapaxes(-1, -2)
