"""Which arrays the kernels take. All others go to the reference, which also knows what to say of mistakes."""

import math

import numpy as np

from npformer.cpu.jit import kernel

KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def suit(*arrays):
    """Whether all are NumPy arrays of one dtype, float32 or float64."""
    dtype = getattr(arrays[0], "dtype", None)
    return dtype in KERNEL_DTYPES and all(type(x) is np.ndarray and x.dtype == dtype for x in arrays)


def as_rows(x):
    """(..., D) as a C-contiguous (all the rest, D); a view where the layout allows."""
    return np.ascontiguousarray(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])


@kernel
def edges_are_finite(x):
    """Whether the first row and the first column of each matrix hold neither NaN nor inf.

    One such number in a factor of a matrix product spoils a whole row or a whole column of the product.
    """
    B, H, T, K = x.shape
    for b in range(B):
        for h in range(H):
            for t in range(T):
                if not np.isfinite(x[b, h, t, 0]):
                    return False
            for j in range(K):
                if not np.isfinite(x[b, h, 0, j]):
                    return False
    return True
