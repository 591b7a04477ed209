"""Convolution as matrix products, one for each tap, on arrays in (T, B, D) order.

In this order the inputs that a tap sees are contiguous. In half precision the sum is rounded after each tap.
"""

import cupy

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.columns import sum_columns
from npformer.reference.math.convolution import taps


@kernel_of(reference.conv1d, as_it_lies="x weight")
def conv1d(x, weight, bias, dilation, causal):
    B, T, _ = x.shape
    rows, y = _by_time(x), cupy.empty((T * B, weight.shape[2]), x.dtype)
    y[...] = 0 if bias is None else bias
    for w, at, seen in taps(T, len(weight), dilation, causal):
        multiply(rows[_all(seen, B)], weight[w], y[_all(at, B)], beta=1.0)
    return _by_sequence(y, B)


@kernel_of(reference.conv1d_backward, as_it_lies="dy x weight")
def conv1d_backward(dy, x, weight, bias, dilation, causal):
    B, T, _ = x.shape
    rows, drows = _by_time(x), _by_time(dy)
    dx, dweight = cupy.zeros(rows.shape, x.dtype), cupy.zeros(weight.shape, x.dtype)
    for w, at, seen in taps(T, len(weight), dilation, causal):
        multiply(drows[_all(at, B)], weight[w].T, dx[_all(seen, B)], beta=1.0)
        multiply(rows[_all(seen, B)].T, drows[_all(at, B)], dweight[w])
    return _by_sequence(dx, B), dweight, None if bias is None else sum_columns(drows)


def _by_time(x):
    """(B, T, D) as (T·B, D)."""
    return cupy.ascontiguousarray(x.swapaxes(0, 1)).reshape(-1, x.shape[2])


def _by_sequence(rows, B):
    """(T·B, D) as (B, T, D)."""
    return cupy.ascontiguousarray(rows.reshape(-1, B, rows.shape[1]).swapaxes(0, 1))


def _all(positions, B):
    """The rows of a (T·B, D) array that belong to these time steps."""
    return slice(positions.start * B, positions.stop * B)
