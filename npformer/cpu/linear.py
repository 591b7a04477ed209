"""The linear map: matrix products in two dimensions, into recycled memory."""

import numpy as np

from npformer import reference
from npformer.cpu.arrays import as_matrix, as_rows, edges_are_finite, suit
from npformer.cpu.blas import BLAS, can_multiply, multiply
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.memory import empty
from npformer.cpu.team import board, multiply_few_rows, wake_helper
from npformer.threads import n_kernel_threads


def linear(x, weight, bias=None):
    """As ``reference.linear``."""
    if not fits(x, weight, *_given(bias)):
        return reference.linear(x, weight, bias)
    y = empty((*x.shape[:-1], weight.shape[1]), x.dtype)
    bias = np.zeros(weight.shape[1], x.dtype) if bias is None else np.ascontiguousarray(bias)
    arrays = BLAS[x.dtype], as_rows(x), as_matrix(weight), bias, as_rows(y)
    if n_kernel_threads():
        wake_helper()
        map_few_rows(board.ctypes.data, *arrays)
    else:
        _map(*arrays)
    return y


def linear_backward(dy, x, weight, bias=None):
    """As ``reference.linear_backward``."""
    if not (fits(x, weight, *_given(bias)) and fits_result(dy, x, weight)):
        return reference.linear_backward(dy, x, weight, bias)
    dx, dweight, dbias = empty(x.shape, x.dtype), empty(weight.shape, x.dtype), np.zeros(weight.shape[1], x.dtype)
    x_rows, dy_rows = as_rows(x), as_rows(dy)
    if not _map_backward(BLAS[x.dtype], dy_rows, x_rows, as_matrix(weight), as_rows(dx), dweight, dbias):
        dweight = reference.product(x_rows.T, dy_rows)
    return dx, dweight, None if bias is None else dbias


def _given(bias):
    return [] if bias is None else [bias]


def fits(x, weight, *bias):
    """Whether x W + b, or x W, can be done here: one dtype, shapes that fit, something to do."""
    return (
        suit(x, weight, *bias)
        and can_multiply(x)
        and weight.ndim == 2
        and x.ndim > 0
        and x.shape[-1] == weight.shape[0]
        and x.size > 0
        and weight.size > 0
        and all(b.shape == weight.shape[1:] for b in bias)
    )


def fits_result(dy, x, weight):
    """Whether dy has the dtype and the shape of x W."""
    return suit(x, dy) and dy.shape == (*x.shape[:-1], weight.shape[1])


@kernel
def _map(blas, x, weight, bias, y):
    multiply(blas, x, weight, y, False)
    _add_bias(y, bias)


@kernel
def map_few_rows(board, blas, x, weight, bias, y):
    """The same, shared between threads by ``team``."""
    multiply_few_rows(board, blas, x, weight, y)
    _add_bias(y, bias)


@inlined
def _add_bias(y, bias):
    for i in range(len(y)):
        for j in range(y.shape[1]):
            y[i, j] += bias[j]


@kernel
def _map_backward(blas, dy, x, weight, dx, dweight, dbias):
    n, D = dy.shape
    for i in range(n):
        for j in range(D):
            dbias[j] += dy[i, j]
    return multiply_backward(blas, dy, x, weight, dx, dweight)


@kernel
def multiply_backward(blas, dy, x, weight, dx, dweight):
    """The two products of x W's backward; False if a NaN or inf in x spoiled dweight, even where dy is 0."""
    multiply(blas, dy, weight.T, dx, False)
    multiply(blas, x.T, dy, dweight, False)
    return edges_are_finite(dweight)
