"""A substitute for cuBLAS.

NumPy computes the calls that npformer makes, from the same addresses, steps and flags.
"""

import ctypes

import numpy as np

cupy = None  # the substitute for CuPy, which knows whether calls are recorded
DTYPES = {0: "float32", 1: "float64", 2: "float16", 14: "bfloat16"}  # the last needs ml_dtypes


def _nothing_to_do(*arguments):
    return 0


cublasCreate_v2 = cublasSetMathMode = _nothing_to_do  # noqa: N816
cublasSetStream_v2 = cublasSetWorkspace_v2 = _nothing_to_do  # noqa: N816


def cublasGemmEx(*arguments):  # noqa: N802
    if cupy.recorded is None:
        _multiply(*arguments)
    else:
        cupy.recorded.append(lambda: _multiply(*arguments))
    return 0


def cublasGemmStridedBatchedEx(*arguments):  # noqa: N802
    given = iter(arguments)
    start = [next(given) for _ in range(7)]
    a, b = ([next(given) for _ in range(4)] for _ in range(2))
    beta, c, (count, *how) = next(given), [next(given) for _ in range(4)], given
    for i in range(count):
        moved = [
            [address + i * step * _itemsize(kind), kind, row]
            for address, kind, row, step in (a, b, c)
        ]
        cublasGemmEx(*start, *moved[0], *moved[1], beta, *moved[2], *how)
    return 0


def _itemsize(kind):
    return np.dtype(DTYPES[kind]).itemsize


@np.errstate(all="ignore")
def _multiply(
    handle, transa, transb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc, *_
):
    """The product of column-major matrices.

    A (m, k) and B (k, n) after their operations, C (m, n).
    """
    a, b = _matrix(a, atype, (m, k), transa, lda), _matrix(b, btype, (k, n), transb, ldb)
    out, wide = _matrix(c, ctype, (m, n), 0, ldc), np.float64 if ctype == 1 else np.float32
    product = (a.astype(wide) @ b.astype(wide)) * alpha._obj.value
    out[...] = product if beta._obj.value == 0 else product + beta._obj.value * out.astype(wide)


def _matrix(address, kind, shape, op, step):
    dtype = np.dtype(DTYPES[kind])
    rows, columns = shape if op == 0 else shape[::-1]
    assert step >= max(rows, 1), "a leading dimension that is too small"
    n_bytes = ((columns - 1) * step + rows) * dtype.itemsize
    memory = (ctypes.c_char * n_bytes).from_address(address)
    x = np.ndarray((rows, columns), dtype, memory, 0, (dtype.itemsize, dtype.itemsize * step))
    return x if op == 0 else x.T
