"""Softmax: ``reference.softmax``, ``log_softmax`` and their backward passes, one row at a time.

A row stays in the cache from its maximum to its result, with a faster exp than NumPy's; the
reference goes through memory for each step. If the axis is not the last one, it is moved there.
"""

import math

import numpy as np

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import kernel
from npformer.cpu.rows import largest
from npformer.cpu.scalar import exp, exp_negative, like
from npformer.cpu.sums import BLOCK, block, sum_of, sum_of_products
from npformer.runtime.memory import empty


@kernel_of(reference.softmax)
def softmax(x, axis):
    return _by_rows(_softmax, axis, x)


@kernel_of(reference.softmax_backward)
def softmax_backward(dy, y, axis):
    return _by_rows(_softmax_backward, axis, dy, y)


@kernel_of(reference.log_softmax)
def log_softmax(x, axis):
    return _by_rows(_log_softmax, axis, x)


@kernel_of(reference.log_softmax_backward)
def log_softmax_backward(dy, y, axis):
    return _by_rows(_log_softmax_backward, axis, dy, y)


def _by_rows(compute, axis, *arrays):
    """The result of a kernel on these arrays, whose rows are along the axis."""
    is_last = axis in (-1, arrays[0].ndim - 1) or arrays[0].ndim == 0
    if not is_last:
        arrays = tuple(np.ascontiguousarray(np.moveaxis(x, axis, -1)) for x in arrays)
    result = empty(arrays[0].shape, arrays[0].dtype)
    n_rows = math.prod(result.shape[:-1])
    # A single number is a row of length 1.
    compute(*[x.reshape(n_rows, -1) for x in (*arrays, result)])
    return result if is_last else np.moveaxis(result, -1, axis)


@kernel
def _softmax(x, y):
    n, D = x.shape
    for i in range(n):
        peak = largest(x, i, D)
        total = 0.0
        if peak == -np.inf:
            y[i, :] = 0
            continue
        for first in range(0, D, BLOCK):
            part = like(peak, 0)
            for j in block(first, D):
                e = exp_negative(x[i, j] - peak)
                y[i, j] = e
                part += e
            total += part
        inverse_total = like(peak, 1 / total)
        for j in range(D):
            y[i, j] *= inverse_total


@kernel
def _softmax_backward(dy, y, dx):
    n, D = y.shape
    for i in range(n):
        total = sum_of_products(dy[i], y[i])
        for j in range(D):
            dx[i, j] = y[i, j] * (dy[i, j] - total)


@kernel
def _log_softmax(x, y):
    n, D = x.shape
    for i in range(n):
        peak = largest(x, i, D)
        total = 0.0
        if peak == -np.inf:
            y[i, :] = peak
            continue
        for first in range(0, D, BLOCK):
            part = like(peak, 0)
            for j in block(first, D):
                # Stored first: added to a large peak, the logarithm would lose its digits.
                y[i, j] = x[i, j] - peak
                part += exp_negative(y[i, j])
            total += part
        log_total = like(peak, np.log(total))
        for j in range(D):
            y[i, j] -= log_total


@kernel
def _log_softmax_backward(dy, y, dx):
    n, D = y.shape
    for i in range(n):
        total = sum_of(dy[i])
        for j in range(D):
            dx[i, j] = dy[i, j] - exp(y[i, j]) * total
