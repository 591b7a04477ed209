"""A matrix product and everything that follows it, in one kernel."""

import numpy as np

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu import sums
from npformer.cpu.backend import as_matrix, kernel_of, original
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.kernels.activations import CODES, activate, multiply_by_slope
from npformer.cpu.kernels.dropout import drawing
from npformer.cpu.kernels.linear import linear, multiply_backward
from npformer.cpu.scalar import is_kept, like
from npformer.reference.math.activations import INPUTS
from npformer.runtime.memory import empty
from npformer.runtime.threads import by_rows, n_kernel_threads


@kernel_of(reference.linear_activation_dropout, as_it_lies="weight")
def linear_activation_dropout(x, weight, bias, activation, dropout_rate, dropout_key):
    width = weight.shape[1]
    bias = np.zeros(width, x.dtype) if bias is None else bias
    y = empty((*x.shape[:-1], width // INPUTS[activation]), x.dtype)
    rest = CODES[activation], *drawing(dropout_rate, dropout_key, x.dtype)
    if n_kernel_threads():  # then the threads share the product
        h = linear(x, weight)
        _activate(as_rows(h), bias, as_rows(y), *rest)
    else:
        h = empty((*x.shape[:-1], width), x.dtype)
        blas, matrix, arrays = BLAS[x.dtype], as_matrix(weight), [as_rows(x), as_rows(h), as_rows(y)]

        def work(part):
            rows, of_h, of_y = (x[part] for x in arrays)
            _map_and_activate(blas, rows, matrix, of_h, bias, of_y, *rest)

        by_rows(work, len(arrays[0]), weight.size if dropout_rate == 0 else 0)  # dropout counts all entries
    return y, h


@kernel_of(reference.linear_activation_dropout_backward, as_it_lies="weight")
def linear_activation_dropout_backward(dy, x, weight, bias, h, activation, dropout_rate, dropout_key):
    dh, dx, dweight, dbias = _gradients(x, weight)
    arrays = as_rows(dy), as_rows(x), as_matrix(weight), as_rows(h), dh, as_rows(dx), dweight, dbias
    _activate_backward(BLAS[x.dtype], *arrays, CODES[activation], *drawing(dropout_rate, dropout_key, x.dtype))
    return dx, dweight, None if bias is None else dbias


@kernel_of(reference.linear_dropout_residual, as_it_lies="weight")
def linear_dropout_residual(x, weight, bias, residual, dropout_rate, dropout_key):
    bias = np.zeros(weight.shape[1], x.dtype) if bias is None else bias
    rest = bias, as_rows(residual), *drawing(dropout_rate, dropout_key, x.dtype)
    if n_kernel_threads():
        y = linear(x, weight)
        _drop_and_add(as_rows(y), *rest)
    else:
        y = empty((*x.shape[:-1], weight.shape[1]), x.dtype)
        blas, matrix, arrays = BLAS[x.dtype], as_matrix(weight), [as_rows(x), as_rows(y), as_rows(residual)]

        def work(part):
            rows, of_y, of_residual = (x[part] for x in arrays)
            _map_drop_and_add(blas, rows, matrix, of_y, bias, of_residual, *rest[2:])

        by_rows(work, len(arrays[0]), weight.size if dropout_rate == 0 else 0)
    return y


@kernel_of(reference.linear_dropout_residual_backward, as_it_lies="weight")
def linear_dropout_residual_backward(dy, x, weight, bias, dropout_rate, dropout_key):
    dh, dx, dweight, dbias = _gradients(x, weight)
    arrays = as_rows(dy), as_rows(x), as_matrix(weight), dh, as_rows(dx), dweight, dbias
    _drop_backward(BLAS[x.dtype], *arrays, *drawing(dropout_rate, dropout_key, x.dtype))
    return dx, dweight, None if bias is None else dbias, original(dy)


def _gradients(x, weight):
    """New arrays for dh, dx, dweight and dbias."""
    n_rows, width = x.size // x.shape[-1], weight.shape[1]
    dh, dx, dweight = (empty(shape, x.dtype) for shape in ((n_rows, width), x.shape, weight.shape))
    return dh, dx, dweight, np.empty(width, x.dtype)


@kernel
def _map_and_activate(blas, x, weight, h, bias, y, code, draw, factor):
    multiply(blas, x, weight, h, False)
    _activate(h, bias, y, code, draw, factor)


@inlined
def _activate(h, bias, y, code, draw, factor):
    n, F = y.shape
    for i in range(n):
        for j in range(h.shape[1]):
            h[i, j] += bias[j]
        activate(h[i], y[i], code)
        if factor != like(factor, 1):
            for j in range(F):
                y[i, j] = y[i, j] * factor if is_kept(i * F + j, draw) else like(factor, 0)


@kernel
def _activate_backward(blas, dy, x, weight, h, dh, dx, dweight, dbias, code, draw, factor):
    n, F = dy.shape
    rows = sums.start(dbias)
    for i in range(n):
        for j in range(F):
            dh[i, j] = dy[i, j] * factor if is_kept(i * F + j, draw) else like(factor, 0)
        multiply_by_slope(dh[i], h[i], code)
        for j in range(h.shape[1]):
            rows[0, j] += dh[i, j]
        sums.carry(rows, i + 1)
    sums.finish(rows, dbias)
    multiply_backward(blas, dh, x, weight, dx, dweight)


@kernel
def _map_drop_and_add(blas, x, weight, y, bias, residual, draw, factor):
    multiply(blas, x, weight, y, False)
    _drop_and_add(y, bias, residual, draw, factor)


@inlined
def _drop_and_add(y, bias, residual, draw, factor):
    n, D = y.shape
    for i in range(n):
        for j in range(D):
            y[i, j] += bias[j]
        if factor != like(factor, 1):
            for j in range(D):
                y[i, j] = y[i, j] * factor if is_kept(i * D + j, draw) else like(factor, 0)
        for j in range(D):
            y[i, j] += residual[i, j]


@kernel
def _drop_backward(blas, dy, x, weight, dh, dx, dweight, dbias, draw, factor):
    n, D = dy.shape
    rows = sums.start(dbias)
    for i in range(n):
        for j in range(D):
            d = dy[i, j] * factor if is_kept(i * D + j, draw) else like(factor, 0)
            dh[i, j] = d
            rows[0, j] += d
        sums.carry(rows, i + 1)
    sums.finish(rows, dbias)
    multiply_backward(blas, dh, x, weight, dx, dweight)
