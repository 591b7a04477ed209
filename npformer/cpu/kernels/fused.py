"""A matrix product and everything that follows it, in one kernel."""

import numpy as np

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu.backend import as_matrix, kernel_of, original
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.kernels.activations import KINDS, activate, multiply_by_slope
from npformer.cpu.kernels.dropout import drawing
from npformer.cpu.kernels.linear import by_rows, gradients_of_parameters, linear
from npformer.cpu.scalar import is_kept, like
from npformer.reference.math.activations import INPUTS
from npformer.runtime.memory import empty
from npformer.runtime.threads import n_kernel_threads


@kernel_of(reference.linear_activation_dropout, as_it_lies="weight")
def linear_activation_dropout(x, weight, bias, activation, dropout_rate, dropout_key):
    width = weight.shape[1]
    bias = np.zeros(width, x.dtype) if bias is None else bias
    y = empty((*x.shape[:-1], width // INPUTS[activation]), x.dtype)
    rest = KINDS[activation], *drawing(dropout_rate, dropout_key, x.dtype)
    if n_kernel_threads():  # then the threads share the product
        h = linear(x, weight)
        _activate(as_rows(h), bias, as_rows(y), 0, *rest)
        return y, h
    h = empty((*x.shape[:-1], width), x.dtype)
    rows = as_rows(x), as_rows(h), as_rows(y)
    by_rows(_map_and_activate, rows, weight.size, BLAS[x.dtype], as_matrix(weight), bias, *rest)
    return y, h


@kernel_of(reference.linear_activation_dropout_backward, as_it_lies="weight")
def linear_activation_dropout_backward(dy, x, weight, bias, h, activation, dropout_rate, dropout_key):
    dx, dh = empty(x.shape, x.dtype), empty((x.size // x.shape[-1], weight.shape[1]), x.dtype)
    rest = KINDS[activation], *drawing(dropout_rate, dropout_key, x.dtype)
    rows = as_rows(dy), as_rows(h), dh, as_rows(dx)
    by_rows(_activate_backward, rows, weight.size, BLAS[x.dtype], as_matrix(weight), *rest)
    dweight, dbias = gradients_of_parameters(as_rows(x), dh, weight)
    return dx, dweight, None if bias is None else dbias


@kernel_of(reference.linear_dropout_residual, as_it_lies="weight")
def linear_dropout_residual(x, weight, bias, residual, dropout_rate, dropout_key):
    bias = np.zeros(weight.shape[1], x.dtype) if bias is None else bias
    draw = drawing(dropout_rate, dropout_key, x.dtype)
    if n_kernel_threads():
        y = linear(x, weight)
        _drop_and_add(as_rows(y), bias, as_rows(residual), 0, *draw)
        return y
    y = empty((*x.shape[:-1], weight.shape[1]), x.dtype)
    rows = as_rows(x), as_rows(y), as_rows(residual)
    by_rows(_map_drop_and_add, rows, weight.size, BLAS[x.dtype], as_matrix(weight), bias, *draw)
    return y


@kernel_of(reference.linear_dropout_residual_backward, as_it_lies="weight")
def linear_dropout_residual_backward(dy, x, weight, bias, dropout_rate, dropout_key):
    dx, dh = empty(x.shape, x.dtype), empty((x.size // x.shape[-1], weight.shape[1]), x.dtype)
    draw = drawing(dropout_rate, dropout_key, x.dtype)
    by_rows(_drop_backward, (as_rows(dy), dh, as_rows(dx)), weight.size, BLAS[x.dtype], as_matrix(weight), *draw)
    dweight, dbias = gradients_of_parameters(as_rows(x), dh, weight)
    return dx, dweight, None if bias is None else dbias, original(dy)


# The first matrices of the kernels are some rows of whole ones, of which ``first`` is the number of the first: dropout
# draws by the position in the whole.


@kernel
def _map_and_activate(x, h, y, first, blas, weight, bias, kind, draw, factor):
    multiply(blas, x, weight, h, False)
    _activate(h, bias, y, first, kind, draw, factor)


@inlined
def _activate(h, bias, y, first, kind, draw, factor):
    n, F = y.shape
    for i in range(n):
        for j in range(h.shape[1]):
            h[i, j] += bias[j]
        activate(kind, h[i], y[i])
        if factor != like(factor, 1):
            for j in range(F):
                y[i, j] = y[i, j] * factor if is_kept((first + i) * F + j, draw) else like(factor, 0)


@kernel
def _activate_backward(dy, h, dh, dx, first, blas, weight, kind, draw, factor):
    n, F = dy.shape
    for i in range(n):
        for j in range(F):
            dh[i, j] = dy[i, j] * factor if is_kept((first + i) * F + j, draw) else like(factor, 0)
        multiply_by_slope(kind, dh[i], h[i])
    multiply(blas, dh, weight.T, dx, False)


@kernel
def _map_drop_and_add(x, y, residual, first, blas, weight, bias, draw, factor):
    multiply(blas, x, weight, y, False)
    _drop_and_add(y, bias, residual, first, draw, factor)


@inlined
def _drop_and_add(y, bias, residual, first, draw, factor):
    n, D = y.shape
    for i in range(n):
        for j in range(D):
            y[i, j] += bias[j]
        if factor != like(factor, 1):
            for j in range(D):
                y[i, j] = y[i, j] * factor if is_kept((first + i) * D + j, draw) else like(factor, 0)
        for j in range(D):
            y[i, j] += residual[i, j]


@kernel
def _drop_backward(dy, dh, dx, first, blas, weight, draw, factor):
    n, D = dy.shape
    for i in range(n):
        for j in range(D):
            dh[i, j] = dy[i, j] * factor if is_kept((first + i) * D + j, draw) else like(factor, 0)
    multiply(blas, dh, weight.T, dx, False)
