"""Convolution on arrays in (T, B, D) order, in which each tap is one matrix product.

In (T, B, D) order the inputs that a tap sees are contiguous, and so are the outputs that see them; in (B, T, D) order
each sequence would need a product of its own.
"""

import numpy as np

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import kernel
from npformer.cpu.sums import add_rows
from npformer.reference.math.convolution import taps
from npformer.runtime.memory import empty, zeros


@kernel_of(reference.conv1d)
def conv1d(x, weight, bias, dilation, causal):
    B, T, _ = x.shape
    rows, y = _by_time(x), empty((T * B, weight.shape[2]), x.dtype)
    y[...] = 0 if bias is None else bias
    for w, at, seen in taps(T, len(weight), dilation, causal):
        _multiply(BLAS[x.dtype], rows[_all(seen, B)], weight[w], y[_all(at, B)], True)
    return _by_sequence(y, B)


@kernel_of(reference.conv1d_backward)
def conv1d_backward(dy, x, weight, bias, dilation, causal):
    B, T, D = x.shape
    rows, drows = _by_time(x), _by_time(dy)
    dx, dweight, dbias = zeros((T * B, D), x.dtype), zeros(weight.shape, x.dtype), np.empty(weight.shape[2], x.dtype)
    add_rows(drows, dbias)
    for w, at, seen in taps(T, len(weight), dilation, causal):
        _multiply(BLAS[x.dtype], drows[_all(at, B)], weight[w].T, dx[_all(seen, B)], True)
        _multiply(BLAS[x.dtype], rows[_all(seen, B)].T, drows[_all(at, B)], dweight[w], False)
    return _by_sequence(dx, B), dweight, None if bias is None else dbias


def _by_time(x):
    """(B, T, D) as (T·B, D)."""
    B, T, D = x.shape
    rows = empty((T * B, D), x.dtype)
    np.copyto(rows.reshape(T, B, D), x.swapaxes(0, 1))
    return rows


def _by_sequence(rows, B):
    """(T·B, D) as (B, T, D)."""
    T, D = len(rows) // B, rows.shape[1]
    x = empty((B, T, D), rows.dtype)
    np.copyto(x, rows.reshape(T, B, D).swapaxes(0, 1))
    return x


def _all(positions, B):
    """The rows of a (T·B, D) array that belong to these time steps."""
    return slice(positions.start * B, positions.stop * B)


@kernel
def _multiply(blas, a, b, out, add):
    multiply(blas, a, b, out, add)
