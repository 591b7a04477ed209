"""Matrix products by cuBLAS, on matrices as they lie in memory: no operand is copied to be transposed.

cuBLAS is called through ctypes, as CuPy's own calls refuse to be recorded in a CUDA graph (cupy issue 6290).
"""

import contextlib
import ctypes
from functools import cache

import cupy
import numpy as np

NORMAL, TRANSPOSED = 0, 1  # cublasOperation_t
DATA_TYPE = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType_t
FLOAT32, FAST_TF32, FLOAT64 = 68, 77, 70  # cublasComputeType_t
DEFAULT_ALGORITHM = -1
WORKSPACE = 32 * 2**20  # bytes, what NVIDIA recommends for Hopper

_products = {"float32": FLOAT32}  # how those of float32 arrays are computed


@contextlib.contextmanager
def tf32():
    """Within it, products of float32 arrays use tensor cores, which round their factors to 11 bits.

    Examples
    --------
    >>> with tf32():
    ...     pass
    """
    before = _products["float32"]
    _products["float32"] = FAST_TF32
    try:
        yield
    finally:
        _products["float32"] = before


def multiply(a, b, out=None, beta=0.0):
    """``a @ b`` of matrices, or of equally many matrices: (n, m) @ (m, p) or (B, n, m) @ (B, m, p).

    Parameters
    ----------
    a, b : CuPy arrays of one dtype
        Read as they lie, transposed or not, if their rows or columns are contiguous; else copied.
    out : CuPy array, optional
        Where to write, its rows contiguous.
    beta : float
        What ``out`` is multiplied by before the product is added to it.

    Returns
    -------
    (n, p) or (B, n, p)
    """
    if out is None:
        out = cupy.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    if out.size == 0:
        return out
    if a.shape[-1] == 0:
        out *= beta
        return out
    a, a_op, a_step = _as_it_lies(a)
    b, b_op, b_step = _as_it_lies(b)
    dtype = a.dtype.name
    scalar = ctypes.c_double if dtype == "float64" else ctypes.c_float
    compute = FLOAT64 if dtype == "float64" else _products["float32"] if dtype == "float32" else FLOAT32
    kind = DATA_TYPE[dtype]
    n_matrices = a.shape[0] if a.ndim == 3 else 1
    # cuBLAS reads columns where we have rows, so every matrix looks transposed to it, and outᵀ = bᵀ aᵀ.
    _check(
        "cublasGemmStridedBatchedEx",
        library().cublasGemmStridedBatchedEx(
            handle(),
            b_op,
            a_op,
            out.shape[-1],
            out.shape[-2],
            a.shape[-1],
            ctypes.byref(scalar(1)),
            b.data.ptr,
            kind,
            b_step,
            _between_matrices(b),
            a.data.ptr,
            kind,
            a_step,
            _between_matrices(a),
            ctypes.byref(scalar(beta)),
            out.data.ptr,
            kind,
            max(out.strides[-2] // out.itemsize, out.shape[-1]),
            _between_matrices(out),
            n_matrices,
            compute,
            DEFAULT_ALGORITHM,
        ),
    )
    return out


def _as_it_lies(x):
    """(array, whether cuBLAS has to transpose it, numbers from a row or column to the next)."""
    rows, columns = (_step(x, axis) for axis in (-2, -1))
    if columns == 1 and rows >= x.shape[-1]:
        return x, NORMAL, rows
    if rows == 1 and columns >= x.shape[-2]:
        return x, TRANSPOSED, columns
    x = cupy.ascontiguousarray(x)
    return x, NORMAL, x.shape[-1]


def _step(x, axis):
    """Numbers from one index to the next; what suits best where there is only one."""
    if x.shape[axis] == 1:
        return 1 if axis == -1 else max(x.shape[-1], 1)
    return x.strides[axis] / x.itemsize if x.strides[axis] % x.itemsize else x.strides[axis] // x.itemsize


def _between_matrices(x):
    return x.strides[0] // x.itemsize if x.ndim == 3 else 0


def handle():
    """cuBLAS's handle for this device, on the current stream, with a workspace of its own."""
    device_handle = _handle_of(cupy.cuda.Device().id)
    _check(
        "cublasSetStream_v2", library().cublasSetStream_v2(device_handle, cupy.cuda.get_current_stream().ptr)
    )  # which takes the workspace away
    workspace = _workspace_of(cupy.cuda.Device().id)
    _check(
        "cublasSetWorkspace_v2", library().cublasSetWorkspace_v2(device_handle, workspace.data.ptr, workspace.nbytes)
    )
    return device_handle


@cache
def _handle_of(device):
    new = ctypes.c_void_p()
    _check("cublasCreate_v2", library().cublasCreate_v2(ctypes.byref(new)))
    return new


@cache
def _workspace_of(device):
    return cupy.empty(WORKSPACE, np.uint8)


@cache
def library():
    """CuBLAS, which CuPy has found and loaded."""
    from cupy_backends.cuda.libs import cublas as _cublas  # noqa: F401

    loaded = ctypes.CDLL(f"libcublas.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}")
    pointer, number, long = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
    matrix = [pointer, number, number, long]  # address, type, step, from one to the next
    loaded.cublasCreate_v2.argtypes = [pointer]
    loaded.cublasSetStream_v2.argtypes = [pointer, pointer]
    loaded.cublasSetWorkspace_v2.argtypes = [pointer, pointer, ctypes.c_size_t]
    loaded.cublasGemmStridedBatchedEx.argtypes = [
        pointer,
        *[number] * 5,
        pointer,
        *matrix,
        *matrix,
        pointer,
        *matrix,
        number,
        number,
        number,
    ]
    return loaded


def _check(function, status):
    if status:
        raise RuntimeError(f"{function} returned cuBLAS's status {status}")
