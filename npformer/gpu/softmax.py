"""Softmax and its logarithm, a block of threads for each row."""

import cupy

from npformer import reference
from npformer.gpu.arrays import as_rows, size_of, suit
from npformer.gpu.launch import for_each_row


def softmax(x, axis=-1):
    """As ``reference.softmax``."""
    return _forward("softmax", x) if _fits(axis, x) else reference.softmax(x, axis)


def softmax_backward(dy, y, axis=-1):
    """As ``reference.softmax_backward``."""
    return _backward("softmax_backward", dy, y) if _fits(axis, dy, y) else reference.softmax_backward(dy, y, axis)


def log_softmax(x, axis=-1):
    """As ``reference.log_softmax``."""
    return _forward("log_softmax", x) if _fits(axis, x) else reference.log_softmax(x, axis)


def log_softmax_backward(dy, y, axis=-1):
    """As ``reference.log_softmax_backward``."""
    fits = _fits(axis, dy, y)
    return _backward("log_softmax_backward", dy, y) if fits else reference.log_softmax_backward(dy, y, axis)


def _fits(axis, *arrays):
    last = axis in (-1, arrays[0].ndim - 1) if suit(*arrays) else False
    return last and arrays[0].ndim > 0 and all(x.shape == arrays[0].shape for x in arrays)


def _forward(name, x):
    rows, y = as_rows(x), cupy.empty(x.shape, x.dtype)
    for_each_row("softmax", name, x.dtype, len(rows), rows, y, *size_of(x.shape[-1]))
    return y


def _backward(name, dy, y):
    dx = cupy.empty(y.shape, y.dtype)
    rows = as_rows(dy)
    for_each_row("softmax", name, y.dtype, len(rows), rows, as_rows(y), dx, *size_of(y.shape[-1]))
    return dx
