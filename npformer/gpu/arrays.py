"""Which arrays the kernels take. All others go to the reference, which also knows what to say of mistakes."""

import math

import cupy
import numpy as np

KERNEL_DTYPES = {"float16", "bfloat16", "float32", "float64"}


def suit(*arrays):
    """Whether all are CuPy arrays of one dtype that the kernels know, and not empty."""
    return all(
        isinstance(x, cupy.ndarray) and x.dtype == arrays[0].dtype and x.dtype.name in KERNEL_DTYPES and x.size > 0
        for x in arrays
    )


def contiguous(x):
    """The array in C order: a copy only if it is not."""
    return cupy.ascontiguousarray(x)


def as_rows(x):
    """(..., D) as a C-contiguous (all the rest, D); a view where the layout allows."""
    return contiguous(x).reshape(math.prod(x.shape[:-1]), x.shape[-1])


def size_of(*numbers):
    """Sizes as the kernels' ``Index``."""
    return tuple(np.int64(number) for number in numbers)


def on_tensor_cores(*arrays):
    """Whether the GPU has them for these numbers, and all rows begin and end at multiples of 16 bytes."""
    if arrays[0].dtype.itemsize != 2 or int(cupy.cuda.Device().compute_capability) < 80:
        return False
    places = [place for x in arrays for place in (x.data.ptr, *x.strides[:-1], x.shape[-1] * x.itemsize)]
    return all(place % 16 == 0 for place in places)
