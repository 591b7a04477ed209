"""A matrix product, then everything that follows it in one pass over its result."""

import numpy as np

from npformer import reference
from npformer.cpu.activations import CODES, activate, multiply_by_slope
from npformer.cpu.arrays import as_rows
from npformer.cpu.dropout import drawing
from npformer.cpu.jit import kernel
from npformer.cpu.linear import fits, fits_result, matmul, product_backward
from npformer.cpu.memory import empty
from npformer.cpu.scalar import is_kept, like
from npformer.reference.checks import check_rate
from npformer.reference.fused import check_activation


def linear_activation_dropout(x, weight, bias, activation, rate=0.0, key=None):
    """As ``reference.linear_activation_dropout``."""
    check_activation(activation)
    check_rate(rate, key)
    if not fits(x, weight, bias):
        return reference.linear_activation_dropout(x, weight, bias, activation, rate, key)
    h = matmul(as_rows(x), weight)
    y = empty(h.shape, h.dtype)
    _activate(h, np.ascontiguousarray(bias), y, CODES[activation], *drawing(rate, key, x.dtype))
    shape = (*x.shape[:-1], weight.shape[1])
    return y.reshape(shape), h.reshape(shape)


def linear_activation_dropout_backward(dy, x, weight, bias, h, activation, rate=0.0, key=None):
    """As ``reference.linear_activation_dropout_backward``."""
    check_activation(activation)
    check_rate(rate, key)
    if not (fits(x, weight, bias) and fits_result(dy, x, weight) and fits_result(h, x, weight)):
        return reference.linear_activation_dropout_backward(dy, x, weight, bias, h, activation, rate, key)
    h = as_rows(h)
    dh, dbias = empty(h.shape, h.dtype), np.zeros(h.shape[1], h.dtype)
    _activate_backward(as_rows(dy), h, dh, dbias, CODES[activation], *drawing(rate, key, x.dtype))
    return *product_backward(dh, x, weight), dbias


def linear_dropout_residual(x, weight, bias, residual, rate=0.0, key=None):
    """As ``reference.linear_dropout_residual``."""
    check_rate(rate, key)
    if not fits(x, weight, bias) or residual is None or not fits_result(residual, x, weight):
        return reference.linear_dropout_residual(x, weight, bias, residual, rate, key)
    y = matmul(as_rows(x), weight)
    _add_to_residual(y, np.ascontiguousarray(bias), as_rows(residual), *drawing(rate, key, x.dtype))
    return y.reshape(residual.shape)


def linear_dropout_residual_backward(dy, x, weight, bias, rate=0.0, key=None):
    """As ``reference.linear_dropout_residual_backward``."""
    check_rate(rate, key)
    if not (fits(x, weight, bias) and fits_result(dy, x, weight)):
        return reference.linear_dropout_residual_backward(dy, x, weight, bias, rate, key)
    dy_rows = as_rows(dy)
    dh, dbias = empty(dy_rows.shape, dy.dtype), np.zeros(dy.shape[-1], dy.dtype)
    _drop_and_sum(dy_rows, dh, dbias, *drawing(rate, key, x.dtype))
    return *product_backward(dh, x, weight), dbias, dy


@kernel
def _activate(h, bias, y, code, draw, factor):
    n, F = h.shape
    for i in range(n):
        for j in range(F):
            h[i, j] += bias[j]
        activate(h[i], y[i], code)
        if draw[0] > 0:
            for j in range(F):
                y[i, j] = y[i, j] * factor if is_kept(i * F + j, draw) else like(factor, 0)


@kernel
def _activate_backward(dy, h, dh, dbias, code, draw, factor):
    n, F = h.shape
    for i in range(n):
        for j in range(F):
            dh[i, j] = dy[i, j] * factor if is_kept(i * F + j, draw) else like(factor, 0)
        multiply_by_slope(dh[i], h[i], code)
        for j in range(F):
            dbias[j] += dh[i, j]


@kernel
def _add_to_residual(y, bias, residual, draw, factor):
    n, D = y.shape
    for i in range(n):
        for j in range(D):
            kept = is_kept(i * D + j, draw)
            y[i, j] = residual[i, j] + ((y[i, j] + bias[j]) * factor if kept else like(factor, 0))


@kernel
def _drop_and_sum(dy, dh, dbias, draw, factor):
    n, D = dy.shape
    for i in range(n):
        for j in range(D):
            d = dy[i, j] * factor if is_kept(i * D + j, draw) else like(factor, 0)
            dh[i, j] = d
            dbias[j] += d
