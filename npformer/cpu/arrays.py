"""Which arrays the kernels take. All others go to the reference, which also knows what to say of mistakes."""

import math

import numpy as np

from npformer.cpu.jit import kernel

IDS = (np.dtype(np.int64), np.dtype(np.int32))
KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def suit(*arrays):
    """Whether all are NumPy arrays of one dtype, float32 or float64."""
    for x in arrays:
        if type(x) is not np.ndarray or x.dtype is not arrays[0].dtype:
            return False
    return arrays[0].dtype in KERNEL_DTYPES


def as_rows(x):
    """(..., D) as a C-contiguous (all the rest, D); a view where the layout allows."""
    return np.ascontiguousarray(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])


def as_matrix(x):
    """A matrix that BLAS can read: C-contiguous, or the transpose of one."""
    return x if x.flags.c_contiguous or x.flags.f_contiguous else np.ascontiguousarray(x)


@kernel
def edges_are_finite(x):
    """``reference.product.edges_are_finite`` of one matrix, for kernels."""
    n_wrong = 0
    for i in range(x.shape[0]):
        n_wrong += not np.isfinite(x[i, 0])
    for j in range(x.shape[1]):
        n_wrong += not np.isfinite(x[0, j])
    return n_wrong == 0
