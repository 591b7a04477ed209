"""Softmax and its logarithm, a block of threads for each row."""

import math

import cupy
from numpy.lib.array_utils import normalize_axis_index

from npformer.gpu.backend import kernel_of
from npformer.gpu.launch import for_each_row
from npformer.kernels.shared import make_softmax_kernels


def _by_rows(name, axis, *arrays):
    """The result of a kernel on these arrays, whose rows are along the axis."""
    result = cupy.empty(arrays[0].shape, arrays[0].dtype)
    shape = result.shape or (1,)  # a single number is a row of length 1
    axis = normalize_axis_index(axis, len(shape))
    n, step = shape[axis], math.prod(shape[axis + 1 :])
    for_each_row("softmax", name, result.dtype, result.size // n, *arrays, result, n, step)
    return result


make_softmax_kernels(
    kernel_of, _by_rows, "softmax", "softmax_backward", "log_softmax", "log_softmax_backward"
)
