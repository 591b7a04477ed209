"""A matrix product and everything that follows it, in one kernel."""

import numpy as np

from npformer import reference
from npformer.cpu.activations import CODES, activate, gelu, multiply_by_slope, relu, silu
from npformer.cpu.arrays import as_matrix, as_rows
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.dropout import drawing, dropout
from npformer.cpu.jit import kernel
from npformer.cpu.linear import fits, fits_result, linear, multiply_backward
from npformer.cpu.memory import empty
from npformer.cpu.scalar import is_kept, like
from npformer.reference.checks import check_rate
from npformer.reference.fused import check_activation
from npformer.threads import n_kernel_threads

ACTIVATIONS = {"relu": relu, "gelu": gelu, "silu": silu}


def linear_activation_dropout(x, weight, bias, activation, rate=0.0, key=None):
    """As ``reference.linear_activation_dropout``."""
    check_activation(activation)
    check_rate(rate, key)
    if not fits(x, weight, bias):
        return reference.linear_activation_dropout(x, weight, bias, activation, rate, key)
    if n_kernel_threads():  # the product is shared between threads
        h = linear(x, weight, bias)
        return dropout(ACTIVATIONS[activation](h), rate, key), h
    shape = (*x.shape[:-1], weight.shape[1])
    y, h = empty(shape, x.dtype), empty(shape, x.dtype)
    arrays = as_rows(x), as_matrix(weight), np.ascontiguousarray(bias), as_rows(h), as_rows(y)
    _activate(BLAS[x.dtype], *arrays, CODES[activation], *drawing(rate, key, x.dtype))
    return y, h


def linear_activation_dropout_backward(dy, x, weight, bias, h, activation, rate=0.0, key=None):
    """As ``reference.linear_activation_dropout_backward``."""
    check_activation(activation)
    check_rate(rate, key)
    if not (fits(x, weight, bias) and fits_result(dy, x, weight) and fits_result(h, x, weight)):
        return reference.linear_activation_dropout_backward(dy, x, weight, bias, h, activation, rate, key)
    dh, dx, dweight, dbias = _gradients(x, weight)
    arrays = as_rows(dy), as_rows(x), as_matrix(weight), as_rows(h), dh, as_rows(dx), dweight, dbias
    if not _activate_backward(BLAS[x.dtype], *arrays, CODES[activation], *drawing(rate, key, x.dtype)):
        dweight = reference.product(as_rows(x).T, dh)
    return dx, dweight, dbias


def linear_dropout_residual(x, weight, bias, residual, rate=0.0, key=None):
    """As ``reference.linear_dropout_residual``."""
    check_rate(rate, key)
    if not fits(x, weight, bias) or residual is None or not fits_result(residual, x, weight):
        return reference.linear_dropout_residual(x, weight, bias, residual, rate, key)
    if n_kernel_threads():
        return dropout(linear(x, weight, bias), rate, key) + residual
    y = empty(residual.shape, x.dtype)
    arrays = as_rows(x), as_matrix(weight), np.ascontiguousarray(bias), as_rows(residual), as_rows(y)
    _add_to_residual(BLAS[x.dtype], *arrays, *drawing(rate, key, x.dtype))
    return y


def linear_dropout_residual_backward(dy, x, weight, bias, rate=0.0, key=None):
    """As ``reference.linear_dropout_residual_backward``."""
    check_rate(rate, key)
    if not (fits(x, weight, bias) and fits_result(dy, x, weight)):
        return reference.linear_dropout_residual_backward(dy, x, weight, bias, rate, key)
    dh, dx, dweight, dbias = _gradients(x, weight)
    arrays = as_rows(dy), as_rows(x), as_matrix(weight), dh, as_rows(dx), dweight, dbias
    if not _drop_backward(BLAS[x.dtype], *arrays, *drawing(rate, key, x.dtype)):
        dweight = reference.product(as_rows(x).T, dh)
    return dx, dweight, dbias, dy


def _gradients(x, weight):
    """Where to write dh, dx, dweight and dbias."""
    n_rows, width = x.size // x.shape[-1], weight.shape[1]
    dh, dx, dweight = (empty(shape, x.dtype) for shape in ((n_rows, width), x.shape, weight.shape))
    return dh, dx, dweight, np.zeros(width, x.dtype)


@kernel
def _activate(blas, x, weight, bias, h, y, code, draw, factor):
    multiply(blas, x, weight, h, False)
    n, F = h.shape
    for i in range(n):
        for j in range(F):
            h[i, j] += bias[j]
        activate(h[i], y[i], code)
        if draw[0] > 0:
            for j in range(F):
                y[i, j] = y[i, j] * factor if is_kept(i * F + j, draw) else like(factor, 0)


@kernel
def _activate_backward(blas, dy, x, weight, h, dh, dx, dweight, dbias, code, draw, factor):
    n, F = h.shape
    for i in range(n):
        for j in range(F):
            dh[i, j] = dy[i, j] * factor if is_kept(i * F + j, draw) else like(factor, 0)
        multiply_by_slope(dh[i], h[i], code)
        for j in range(F):
            dbias[j] += dh[i, j]
    return multiply_backward(blas, dh, x, weight, dx, dweight)


@kernel
def _add_to_residual(blas, x, weight, bias, residual, y, draw, factor):
    multiply(blas, x, weight, y, False)
    n, D = y.shape
    for i in range(n):
        for j in range(D):
            kept = is_kept(i * D + j, draw)
            y[i, j] = residual[i, j] + ((y[i, j] + bias[j]) * factor if kept else like(factor, 0))


@kernel
def _drop_backward(blas, dy, x, weight, dh, dx, dweight, dbias, draw, factor):
    n, D = dy.shape
    for i in range(n):
        for j in range(D):
            d = dy[i, j] * factor if is_kept(i * D + j, draw) else like(factor, 0)
            dh[i, j] = d
            dbias[j] += d
    return multiply_backward(blas, dh, x, weight, dx, dweight)
