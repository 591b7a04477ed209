"""The linear map: matrix products in two dimensions, into recycled memory."""

import numpy as np

from npformer import reference
from npformer.cpu.arrays import as_rows, edges_are_finite, suit
from npformer.cpu.jit import kernel
from npformer.cpu.memory import empty
from npformer.reference.arrays import quiet


def linear(x, weight, bias=None):
    """As ``reference.linear``."""
    if not fits(x, weight, bias):
        return reference.linear(x, weight, bias)
    y = matmul(as_rows(x), weight)
    if bias is not None:
        _add_bias(y, np.ascontiguousarray(bias))
    return y.reshape(*x.shape[:-1], weight.shape[1])


def linear_backward(dy, x, weight, bias=None):
    """As ``reference.linear_backward``."""
    if not (fits(x, weight, bias) and fits_result(dy, x, weight)):
        return reference.linear_backward(dy, x, weight, bias)
    dy_rows = as_rows(dy)
    dbias = None if bias is None else column_sums(dy_rows)
    return *product_backward(dy_rows, x, weight), dbias


def product_backward(dy_rows, x, weight):
    """(dx, dweight) of x W."""
    x_rows = as_rows(x)
    dx, dweight = matmul(dy_rows, weight.T), matmul(x_rows.T, dy_rows)
    if not edges_are_finite(dweight[None, None]):  # a row of x that holds NaN, but has no gradient, must not matter
        dweight = reference.product(x_rows.T, dy_rows)
    return dx.reshape(x.shape), dweight


@quiet
def matmul(a, b):
    """a @ b of two matrices."""
    return np.matmul(a, b, out=empty((a.shape[0], b.shape[1]), a.dtype))


def column_sums(x):
    """Σ over the rows."""
    total = np.zeros(x.shape[1], x.dtype)
    _add_rows(x, total)
    return total


def fits(x, weight, bias=None):
    """Whether x W + b can be done here: one dtype, shapes that fit, something to do."""
    return (
        suit(x, weight)
        and weight.ndim == 2
        and x.ndim > 0
        and x.shape[-1] == weight.shape[0]
        and x.size > 0
        and weight.size > 0
        and (bias is None or (suit(x, bias) and bias.shape == weight.shape[1:]))
    )


def fits_result(dy, x, weight):
    """Whether dy has the dtype and the shape of x W."""
    return suit(x, dy) and dy.shape == (*x.shape[:-1], weight.shape[1])


@kernel
def _add_bias(y, bias):
    n, D = y.shape
    for i in range(n):
        for j in range(D):
            y[i, j] += bias[j]


@kernel
def _add_rows(x, total):
    n, D = x.shape
    for i in range(n):
        for j in range(D):
            total[j] += x[i, j]
