"""Matrix products by cuBLAS, which reads transposed matrices without copying them.

cuBLAS is called through ctypes, because CuPy's own calls cannot be recorded in a CUDA graph (cupy
issue 6290).
"""

import contextlib
import ctypes
import threading
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from npformer.gpu.memory import lasting

NORMAL = 0  # cublasOperation_t
TRANSPOSED = 1
DATA_TYPE = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType_t
FLOAT32 = 68  # cublasComputeType_t
FAST_TF32 = 77
FLOAT64 = 70
DEFAULT_ALGORITHM = -1
NO_REDUCED_SUMS = 16  # cublasMath_t: partial sums of half-precision products are added in float32
COMPUTE_TYPE = {"float32": FLOAT32, "float64": FLOAT64, "float16": FLOAT32, "bfloat16": FLOAT32}
WORKSPACE = 32 * 2**20  # bytes; NVIDIA recommends this size for Hopper

# by device: another thread would set the stream of a shared one before a product
_handles = threading.local()
# Each thread has its own: another training may run in full precision at the same time.
_is_tf32 = ContextVar("is_tf32", default=False)


@contextlib.contextmanager
def tf32():
    """Context manager in which products of float32 arrays use tensor cores, which round their
    inputs to 11 bits; for this thread only.
    """
    token = _is_tf32.set(True)
    try:
        yield
    finally:
        _is_tf32.reset(token)


def multiply(a, b, out=None, add=False):
    """``a @ b``: (n, m) @ (m, p), or N such products in one call, (N, n, m) @ (N, m, p).

    Arrays of one dtype, which are not copied if their rows or their columns are contiguous. ``out``
    (n, p) is the array to write to, C-contiguous; with ``add`` the product is added to what is in
    it.
    """
    if out is None:
        out = cupy.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    n, m = a.shape[-2:]
    p = b.shape[-1]
    # cuBLAS expects column-major matrices, so it sees ours as transposed, and computes
    # outᵀ = bᵀ aᵀ: its factor A is b, B is a, and its sizes (m, n, k) are (p, n, m).
    left = _as_it_lies(b)
    right = _as_it_lies(a)
    dtype = a.dtype.name
    result: tuple = (out.data.ptr, DATA_TYPE[dtype], p)
    compute_type = COMPUTE_TYPE[dtype]
    if dtype == "float32" and _is_tf32.get():
        compute_type = FAST_TF32
    scalar = ctypes.c_double if dtype == "float64" else ctypes.c_float
    if a.ndim == 2:
        name = "cublasGemmEx"
        count: tuple = ()
    else:
        name = "cublasGemmStridedBatchedEx"
        count = (len(a),)
        result += (n * p,)
    # cublasGemmEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C,
    # Ctype, ldc, computeType, algo); for a batch a stride follows each of lda, ldb and ldc, and the
    # number of products comes before computeType.
    status = getattr(library(), name)(
        handle(),
        left.operation,
        right.operation,
        p,
        n,
        m,
        ctypes.byref(scalar(1)),
        *left.place,
        *right.place,
        ctypes.byref(scalar(add)),
        *result,
        *count,
        compute_type,
        DEFAULT_ALGORITHM,
    )
    _check(name, status)
    return out


class Matrices(NamedTuple):
    """One matrix, or a batch of them, as cuBLAS is told of it."""

    operation: int
    place: tuple  # address, data type, leading dimension and, of a batch, the step to the next
    array: cupy.ndarray  # keeps the memory


def _as_it_lies(x):
    """The matrices of ``x``, copied if neither their rows nor their columns are contiguous."""
    rows, columns = x.shape[-2:]
    *batch_step, row_step, column_step = (stride // x.itemsize for stride in x.strides)
    if (column_step == 1 or columns == 1) and (row_step >= columns or rows == 1):
        operation = NORMAL
        leading = max(row_step, columns) if rows > 1 else columns
    elif (row_step == 1 or rows == 1) and (column_step >= rows or columns == 1):
        operation = TRANSPOSED
        leading = max(column_step, rows) if columns > 1 else rows
    else:
        return _as_it_lies(cupy.ascontiguousarray(x))
    place = (x.data.ptr, DATA_TYPE[x.dtype.name], leading, *batch_step)
    return Matrices(operation, place, x)


def handle():
    """The cuBLAS handle of this thread and device, set to the current stream and a workspace of its
    own.
    """
    device = cupy.cuda.Device().id
    handles = vars(_handles)
    if device not in handles:
        handles[device] = _new_handle()
    this, workspace = handles[device]
    blas = library()
    stream = cupy.cuda.get_current_stream().ptr  # setting the stream resets the workspace
    _check("cublasSetStream_v2", blas.cublasSetStream_v2(this, stream))
    status = blas.cublasSetWorkspace_v2(this, workspace.data.ptr, workspace.nbytes)
    _check("cublasSetWorkspace_v2", status)
    return this


def _new_handle():
    """A handle, and its workspace."""
    new = ctypes.c_void_p()
    _check("cublasCreate_v2", library().cublasCreate_v2(ctypes.byref(new)))
    _check("cublasSetMathMode", library().cublasSetMathMode(new, NO_REDUCED_SUMS))
    with lasting():
        return new, cupy.empty(WORKSPACE, np.uint8)


@cache
def library():
    """The cuBLAS library that CuPy has found and loaded."""
    from cupy_backends.cuda.libs import cublas as _cublas  # noqa: F401

    loaded = ctypes.CDLL(f"libcublas.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}")
    pointer: Any = ctypes.c_void_p
    number: Any = ctypes.c_int
    matrix = [pointer, number, number]  # ``Matrices.place``
    matrices = [*matrix, ctypes.c_longlong]
    loaded.cublasCreate_v2.argtypes = [pointer]
    loaded.cublasSetMathMode.argtypes = [pointer, number]
    loaded.cublasSetStream_v2.argtypes = [pointer, pointer]
    loaded.cublasSetWorkspace_v2.argtypes = [pointer, pointer, ctypes.c_size_t]
    sizes = [pointer, *[number] * 5]
    arrays = [pointer, *matrix, *matrix, pointer, *matrix]
    loaded.cublasGemmEx.argtypes = [*sizes, *arrays, number, number]
    products = loaded.cublasGemmStridedBatchedEx
    products.argtypes = [*sizes, pointer, *matrices, *matrices, pointer, *matrices, *[number] * 3]
    return loaded


def _check(function, status):
    if status:
        raise RuntimeError(f"{function} returned cuBLAS's status {status}")
