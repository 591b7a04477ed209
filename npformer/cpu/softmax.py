"""Softmax over the last axis, a row at a time."""

import numpy as np

from npformer import reference
from npformer.cpu.arrays import as_rows, suit
from npformer.cpu.jit import kernel
from npformer.cpu.memory import empty
from npformer.cpu.scalar import exp, largest, like


def softmax(x, axis=-1):
    """As ``reference.softmax``."""
    if not _suit(x, axis):
        return reference.softmax(x, axis)
    y = empty(x.shape, x.dtype)
    _softmax(as_rows(x), as_rows(y))
    return y


def softmax_backward(dy, y, axis=-1):
    """As ``reference.softmax_backward``."""
    if not (_suit(y, axis) and suit(y, dy) and dy.shape == y.shape):
        return reference.softmax_backward(dy, y, axis)
    dx = empty(y.shape, y.dtype)
    _softmax_backward(as_rows(dy), as_rows(y), as_rows(dx))
    return dx


def log_softmax(x, axis=-1):
    """As ``reference.log_softmax``."""
    if not _suit(x, axis):
        return reference.log_softmax(x, axis)
    y = empty(x.shape, x.dtype)
    _log_softmax(as_rows(x), as_rows(y))
    return y


def log_softmax_backward(dy, y, axis=-1):
    """As ``reference.log_softmax_backward``."""
    if not (_suit(y, axis) and suit(y, dy) and dy.shape == y.shape):
        return reference.log_softmax_backward(dy, y, axis)
    dx = empty(y.shape, y.dtype)
    _log_softmax_backward(as_rows(dy), as_rows(y), as_rows(dx))
    return dx


def _suit(x, axis):
    return suit(x) and x.size > 0 and x.ndim > 0 and type(axis) is int and axis in (-1, x.ndim - 1)


@kernel
def _softmax(x, y):
    n, D = x.shape
    for i in range(n):
        peak, total = largest(x, i, D), like(x[i, 0], 0)
        if peak == -np.inf:
            y[i, :] = like(peak, 0)
            continue
        for j in range(D):
            e = exp(x[i, j] - peak)
            y[i, j] = e
            total += e
        share = like(peak, 1) / total
        for j in range(D):
            y[i, j] *= share


@kernel
def _softmax_backward(dy, y, dx):
    n, D = y.shape
    for i in range(n):
        total = like(y[i, 0], 0)
        for j in range(D):
            total += dy[i, j] * y[i, j]
        for j in range(D):
            dx[i, j] = y[i, j] * (dy[i, j] - total)


@kernel
def _log_softmax(x, y):
    n, D = x.shape
    for i in range(n):
        peak, total = largest(x, i, D), like(x[i, 0], 0)
        if peak == -np.inf:
            y[i, :] = peak
            continue
        for j in range(D):
            total += exp(x[i, j] - peak)
        log_sum = peak + like(peak, np.log(total))
        for j in range(D):
            y[i, j] = x[i, j] - log_sum


@kernel
def _log_softmax_backward(dy, y, dx):
    n, D = y.shape
    for i in range(n):
        total = like(y[i, 0], 0)
        for j in range(D):
            total += dy[i, j]
        for j in range(D):
            dx[i, j] = dy[i, j] - exp(y[i, j]) * total
