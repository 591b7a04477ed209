"""A matrix product and everything that follows it, in one kernel."""

import numpy as np

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu.backend import as_matrix, kernel_of, original
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.kernels.activations import CODES, activate, multiply_by_slope
from npformer.cpu.kernels.dropout import drawing
from npformer.cpu.kernels.linear import ROWS_OF_A_PART, gradients_of_parameters, linear
from npformer.cpu.scalar import is_kept, like
from npformer.reference.math.activations import INPUTS
from npformer.runtime.memory import empty
from npformer.runtime.threads import in_parts, n_kernel_threads


@kernel_of(reference.linear_activation_dropout, as_it_lies="weight")
def linear_activation_dropout(x, weight, bias, activation, dropout_rate, dropout_key):
    width = weight.shape[1]
    bias = np.zeros(width, x.dtype) if bias is None else bias
    y = empty((*x.shape[:-1], width // INPUTS[activation]), x.dtype)
    rest = CODES[activation], *drawing(dropout_rate, dropout_key, x.dtype)
    if n_kernel_threads():  # then the threads share the product
        h = linear(x, weight)
        _activate(as_rows(h), bias, as_rows(y), 0, *rest)
        return y, h
    h = empty((*x.shape[:-1], width), x.dtype)
    blas, matrix, of_x, of_h, of_y = BLAS[x.dtype], as_matrix(weight), as_rows(x), as_rows(h), as_rows(y)

    def work(part):
        _map_and_activate(blas, of_x[part], matrix, of_h[part], bias, of_y[part], part.start, *rest)

    in_parts(work, len(of_x), ROWS_OF_A_PART, weight.size)
    return y, h


@kernel_of(reference.linear_activation_dropout_backward, as_it_lies="weight")
def linear_activation_dropout_backward(dy, x, weight, bias, h, activation, dropout_rate, dropout_key):
    dx, dh = empty(x.shape, x.dtype), empty((x.size // x.shape[-1], weight.shape[1]), x.dtype)
    blas, matrix, of_y, of_h, of_x = BLAS[x.dtype], as_matrix(weight), as_rows(dy), as_rows(h), as_rows(dx)
    rest = CODES[activation], *drawing(dropout_rate, dropout_key, x.dtype)

    def work(part):
        _activate_backward(blas, of_y[part], matrix, of_h[part], dh[part], of_x[part], part.start, *rest)

    in_parts(work, len(dh), ROWS_OF_A_PART, weight.size)
    dweight, dbias = gradients_of_parameters(as_rows(x), dh, weight)
    return dx, dweight, None if bias is None else dbias


@kernel_of(reference.linear_dropout_residual, as_it_lies="weight")
def linear_dropout_residual(x, weight, bias, residual, dropout_rate, dropout_key):
    bias = np.zeros(weight.shape[1], x.dtype) if bias is None else bias
    residual, draw = as_rows(residual), drawing(dropout_rate, dropout_key, x.dtype)
    if n_kernel_threads():
        y = linear(x, weight)
        _drop_and_add(as_rows(y), bias, residual, 0, *draw)
        return y
    y = empty((*x.shape[:-1], weight.shape[1]), x.dtype)
    blas, matrix, of_x, of_y = BLAS[x.dtype], as_matrix(weight), as_rows(x), as_rows(y)

    def work(part):
        _map_drop_and_add(blas, of_x[part], matrix, of_y[part], bias, residual[part], part.start, *draw)

    in_parts(work, len(of_x), ROWS_OF_A_PART, weight.size)
    return y


@kernel_of(reference.linear_dropout_residual_backward, as_it_lies="weight")
def linear_dropout_residual_backward(dy, x, weight, bias, dropout_rate, dropout_key):
    dx, dh = empty(x.shape, x.dtype), empty((x.size // x.shape[-1], weight.shape[1]), x.dtype)
    blas, matrix, of_y, of_x = BLAS[x.dtype], as_matrix(weight), as_rows(dy), as_rows(dx)
    draw = drawing(dropout_rate, dropout_key, x.dtype)

    def work(part):
        _drop_backward(blas, of_y[part], matrix, dh[part], of_x[part], part.start, *draw)

    in_parts(work, len(dh), ROWS_OF_A_PART, weight.size)
    dweight, dbias = gradients_of_parameters(as_rows(x), dh, weight)
    return dx, dweight, None if bias is None else dbias, original(dy)


# The arrays of the kernels are some rows of whole arrays, of which ``first`` is the number of the first: dropout draws
# by the position in the whole.


@kernel
def _map_and_activate(blas, x, weight, h, bias, y, first, code, draw, factor):
    multiply(blas, x, weight, h, False)
    _activate(h, bias, y, first, code, draw, factor)


@inlined
def _activate(h, bias, y, first, code, draw, factor):
    n, F = y.shape
    for i in range(n):
        for j in range(h.shape[1]):
            h[i, j] += bias[j]
        activate(h[i], y[i], code)
        if factor != like(factor, 1):
            for j in range(F):
                y[i, j] = y[i, j] * factor if is_kept((first + i) * F + j, draw) else like(factor, 0)


@kernel
def _activate_backward(blas, dy, weight, h, dh, dx, first, code, draw, factor):
    n, F = dy.shape
    for i in range(n):
        for j in range(F):
            dh[i, j] = dy[i, j] * factor if is_kept((first + i) * F + j, draw) else like(factor, 0)
        multiply_by_slope(dh[i], h[i], code)
    multiply(blas, dh, weight.T, dx, False)


@kernel
def _map_drop_and_add(blas, x, weight, y, bias, residual, first, draw, factor):
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
def _drop_backward(blas, dy, weight, dh, dx, first, draw, factor):
    n, D = dy.shape
    for i in range(n):
        for j in range(D):
            dh[i, j] = dy[i, j] * factor if is_kept((first + i) * D + j, draw) else like(factor, 0)
    multiply(blas, dh, weight.T, dx, False)
