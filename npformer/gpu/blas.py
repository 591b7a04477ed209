"""Matrix products by cuBLAS, which reads transposed matrices without copying them.

cuBLAS is called through ctypes, because CuPy's own calls cannot be recorded in a CUDA graph (cupy
issue 6290).
"""

import contextlib
import ctypes
import threading
from functools import cache

import cupy
import numpy as np

from npformer.gpu.memory import lasting

NORMAL, TRANSPOSED = 0, 1  # cublasOperation_t
DATA_TYPE = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType_t
FLOAT32, FAST_TF32, FLOAT64 = 68, 77, 70  # cublasComputeType_t
DEFAULT_ALGORITHM = -1
EACH = "cublasGemmStridedBatchedEx"
NO_REDUCED_SUMS = 16  # cublasMath_t: partial sums of half-precision products are added in float32
WORKSPACE = 32 * 2**20  # bytes; NVIDIA recommends this size for Hopper

# by device: another thread would set the stream of a shared one before a product
_handles = threading.local()
_compute_type = {"float32": FLOAT32, "float64": FLOAT64, "float16": FLOAT32, "bfloat16": FLOAT32}


@contextlib.contextmanager
def tf32():
    """Context manager in which products of float32 arrays use tensor cores, which round their
    inputs to 11 bits.
    """
    before = _compute_type["float32"]
    _compute_type["float32"] = FAST_TF32
    try:
        yield
    finally:
        _compute_type["float32"] = before


def multiply(a, b, out=None, add=False):
    """``a @ b``: (n, m) @ (m, p), or N such products in one call, (N, n, m) @ (N, m, p).

    Arrays of one dtype, which are not copied if their rows or their columns are contiguous. ``out``
    (n, p) is the array to write to, C-contiguous; with ``add`` the product is added to what is in
    it.
    """
    if out is None:
        out = cupy.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    (n, m), p, dtype = a.shape[-2:], b.shape[-1], a.dtype.name
    (a, a_op, *a_steps), (b, b_op, *b_steps) = _as_it_lies(a), _as_it_lies(b)
    if a.ndim == 2:
        name, steps, count = "cublasGemmEx", (p,), ()
    else:
        name, steps, count = EACH, (p, n * p), (len(a),)
    kind, scalar = DATA_TYPE[dtype], ctypes.c_double if dtype == "float64" else ctypes.c_float
    one, factor = ctypes.byref(scalar(1)), ctypes.byref(scalar(add))
    # cuBLAS expects column-major matrices, so it sees ours as transposed, and computes outᵀ = bᵀ
    # aᵀ.
    factors = b.data.ptr, kind, *b_steps, a.data.ptr, kind, *a_steps
    matrices = one, *factors, factor, out.data.ptr, kind, *steps
    how = *count, _compute_type[dtype], DEFAULT_ALGORITHM
    _check(name, getattr(library(), name)(handle(), b_op, a_op, p, n, m, *matrices, *how))
    return out


def _as_it_lies(x):
    """(array, whether cuBLAS has to transpose it, its steps), where the array is ``x`` or a copy.

    The steps are its leading dimension and, for a batch, that from one matrix to the next.
    """
    rows, columns = x.shape[-2:]
    *to_next, row_step, column_step = (stride // x.itemsize for stride in x.strides)
    if (column_step == 1 or columns == 1) and (row_step >= columns or rows == 1):
        return x, NORMAL, max(row_step, columns) if rows > 1 else columns, *to_next
    if (row_step == 1 or rows == 1) and (column_step >= rows or columns == 1):
        return x, TRANSPOSED, max(column_step, rows) if columns > 1 else rows, *to_next
    return cupy.ascontiguousarray(x), NORMAL, columns, *(rows * columns for _ in to_next)


def handle():
    """The cuBLAS handle of this thread and device, set to the current stream and a workspace of its
    own.
    """
    device, handles = cupy.cuda.Device().id, _handles.__dict__
    if device not in handles:
        handles[device] = _new_handle()
    known, workspace = handles[device]
    stream = cupy.cuda.get_current_stream().ptr  # setting the stream resets the workspace
    _check("cublasSetStream_v2", library().cublasSetStream_v2(known, stream))
    _check(
        "cublasSetWorkspace_v2",
        library().cublasSetWorkspace_v2(known, workspace.data.ptr, workspace.nbytes),
    )
    return known


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
    pointer, number = ctypes.c_void_p, ctypes.c_int
    # address, type, steps
    matrix, matrices = [pointer, number, number], [pointer, number, number, ctypes.c_longlong]
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
