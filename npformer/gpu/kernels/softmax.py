"""Softmax: ``reference.softmax``, ``log_softmax`` and their backward passes, a block of threads for
each row, which may lie along any axis: it is not moved.
"""

import math

import cupy
from numpy.lib.array_utils import normalize_axis_index

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.launch import row_kernel


@kernel_of(reference.softmax)
def softmax(x, axis):
    # softmax(x, y, n, step)
    return _by_rows("softmax", axis, x)


@kernel_of(reference.softmax_backward)
def softmax_backward(dy, y, axis):
    # softmax_backward(dy, y, dx, n, step)
    return _by_rows("softmax_backward", axis, dy, y)


@kernel_of(reference.log_softmax)
def log_softmax(x, axis):
    # log_softmax(x, y, n, step)
    return _by_rows("log_softmax", axis, x)


@kernel_of(reference.log_softmax_backward)
def log_softmax_backward(dy, y, axis):
    # log_softmax_backward(dy, y, dx, n, step)
    return _by_rows("log_softmax_backward", axis, dy, y)


def _by_rows(name, axis, *arrays):
    """The result of the kernel of this name on these arrays, whose rows are along the axis."""
    result = cupy.empty(arrays[0].shape, arrays[0].dtype)
    shape = result.shape or (1,)  # a single number is a row of length 1
    axis = normalize_axis_index(axis, len(shape))
    n = shape[axis]
    step = math.prod(shape[axis + 1 :])
    kernel = row_kernel("softmax", name, result.dtype, result.size // n)
    kernel(*arrays, result, n, step)
    return result
