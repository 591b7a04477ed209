"""Convolution as matrix products, one for each tap, in time order: all sequences at a time, then at the next.

So the inputs that a tap sees lie one after another. In half precision what is added up is rounded after each tap.
"""

import cupy

from npformer import reference
from npformer.gpu.arrays import contiguous, suit
from npformer.gpu.blas import multiply
from npformer.gpu.columns import sum_columns
from npformer.gpu.linear import fits_result
from npformer.gpu.product import mended_product
from npformer.reference.convolution import check_conv1d, taps


def conv1d(x, weight, bias=None, *, dilation=1, causal=False):
    """As ``reference.conv1d``."""
    if not _fits(x, weight, bias):
        return reference.conv1d(x, weight, bias, dilation=dilation, causal=causal)
    check_conv1d(x, weight, bias, dilation, causal)
    B, T, _ = x.shape
    rows, y = _by_time(x), cupy.empty((T * B, weight.shape[2]), x.dtype)
    y[...] = 0 if bias is None else bias
    for w, at, seen in taps(T, len(weight), dilation, causal):
        multiply(rows[_all(seen, B)], weight[w], y[_all(at, B)], beta=1.0)
    return _by_sequence(y, B)


def conv1d_backward(dy, x, weight, bias=None, *, dilation=1, causal=False):
    """As ``reference.conv1d_backward``."""
    if not _fits(x, weight, bias) or not fits_result(dy, x, weight[0]):
        return reference.conv1d_backward(dy, x, weight, bias, dilation=dilation, causal=causal)
    check_conv1d(x, weight, bias, dilation, causal)
    B, T, _ = x.shape
    rows, drows = _by_time(x), _by_time(dy)
    dx, dweight = cupy.zeros(rows.shape, x.dtype), cupy.zeros(weight.shape, x.dtype)
    for w, at, seen in taps(T, len(weight), dilation, causal):
        multiply(drows[_all(at, B)], weight[w].T, dx[_all(seen, B)], beta=1.0)
        mended_product(rows[_all(seen, B)].T, drows[_all(at, B)], dweight[w])
    return _by_sequence(dx, B), dweight, None if bias is None else sum_columns(drows)


def _fits(x, weight, bias):
    arrays = (x, weight) if bias is None else (x, weight, bias)
    return suit(*arrays) and x.ndim == weight.ndim == 3 and x.shape[2] == weight.shape[1]


def _by_time(x):
    """(B, T, D) as (T·B, D)."""
    return contiguous(x.swapaxes(0, 1)).reshape(-1, x.shape[2])


def _by_sequence(rows, B):
    """(T·B, D) as (B, T, D)."""
    return contiguous(rows.reshape(-1, B, rows.shape[1]).swapaxes(0, 1))


def _all(positions, B):
    """The rows of some positions."""
    return slice(positions.start * B, positions.stop * B)
