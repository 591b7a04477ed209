"""Convolution on arrays in (T, B, D) order, in which each tap is one matrix product.

In (T, B, D) order the inputs that a tap sees are contiguous, and so are the outputs that see them; in (B, T, D) order
each sequence would need a product of its own.
"""

import numpy as np

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.sums import add_rows
from npformer.runtime.memory import empty, zeros


@kernel_of(reference.conv1d)
def conv1d(x, weight, bias, dilation, causal):
    B, T, _ = x.shape
    y = empty((T * B, weight.shape[2]), x.dtype)
    y[...] = 0 if bias is None else bias
    _convolve(BLAS[x.dtype], _by_time(x), weight, B, min(dilation, T), causal, y)
    return _by_sequence(y, B)


@kernel_of(reference.conv1d_backward)
def conv1d_backward(dy, x, weight, bias, dilation, causal):
    B, T, D = x.shape
    dx, dweight, dbias = zeros((T * B, D), x.dtype), zeros(weight.shape, x.dtype), np.empty(weight.shape[2], x.dtype)
    inputs = _by_time(dy), _by_time(x), weight, B, min(dilation, T), causal
    _convolve_backward(BLAS[x.dtype], *inputs, dx, dweight, dbias)
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


@kernel
def _convolve(blas, x, weight, B, dilation, causal, y):
    for w in range(len(weight)):
        first, stop, shift = _tap(w, len(weight), len(x) // B, dilation, causal)
        if first < stop:
            seen = x[(first + shift) * B : (stop + shift) * B]
            multiply(blas, seen, weight[w], y[first * B : stop * B], True)


@kernel
def _convolve_backward(blas, dy, x, weight, B, dilation, causal, dx, dweight, dbias):
    add_rows(dy, dbias)
    for w in range(len(weight)):
        first, stop, shift = _tap(w, len(weight), len(x) // B, dilation, causal)
        if first < stop:
            seen = slice((first + shift) * B, (stop + shift) * B)
            dy_there = dy[first * B : stop * B]
            multiply(blas, dy_there, weight[w].T, dx[seen], True)
            multiply(blas, x[seen].T, dy_there, dweight[w], False)


@inlined
def _tap(w, W, T, dilation, causal):
    """(first, stop, shift): tap w connects output t with input t + shift, for t in first … stop - 1.

    The same as ``reference.convolution.taps``.
    """
    shift = dilation * (w - (W - 1 if causal else (W - 1) // 2))
    return max(0, -shift), min(T, T - shift), shift
