"""The linear map: products of two-dimensional matrices, written to recycled memory."""

import numpy as np

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu.backend import as_matrix, kernel_of
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.sums import add_rows
from npformer.cpu.team import WORTH_IT, helper_for, multiply_few_rows
from npformer.runtime.memory import empty
from npformer.runtime.threads import by_rows, n_kernel_threads


@kernel_of(reference.linear, as_it_lies="weight")
def linear(x, weight, bias):
    y = empty((*x.shape[:-1], weight.shape[1]), x.dtype)
    bias = np.empty(0, x.dtype) if bias is None else bias
    blas, x, matrix, rows = BLAS[x.dtype], as_rows(x), as_matrix(weight), as_rows(y)
    if n_kernel_threads() and weight.size >= WORTH_IT:
        map_few_rows(helper_for(x.dtype), blas, x, matrix, bias, rows)
    else:
        by_rows(lambda part: _map(blas, x[part], matrix, bias, rows[part]), len(x), weight.size)
    return y


@kernel_of(reference.linear_backward, as_it_lies="weight")
def linear_backward(dy, x, weight, bias):
    dx, dweight, dbias = empty(x.shape, x.dtype), empty(weight.shape, x.dtype), np.empty(weight.shape[1], x.dtype)
    _map_backward(BLAS[x.dtype], as_rows(dy), as_rows(x), as_matrix(weight), as_rows(dx), dweight, dbias)
    return dx, dweight, None if bias is None else dbias


@kernel
def _map(blas, x, weight, bias, y):
    multiply(blas, x, weight, y, False)
    _add_bias(y, bias)


@inlined
def map_few_rows(helper, blas, x, weight, bias, y):
    """``_map``, with the product shared between threads by ``team``."""
    multiply_few_rows(helper, blas, x, weight, y)
    _add_bias(y, bias)


@inlined
def _add_bias(y, bias):
    for i in range(len(y)):
        for j in range(len(bias)):
            y[i, j] += bias[j]


@kernel
def _map_backward(blas, dy, x, weight, dx, dweight, dbias):
    add_rows(dy, dbias)
    multiply_backward(blas, dy, x, weight, dx, dweight)


@inlined
def multiply_backward(blas, dy, x, weight, dx, dweight):
    """The two products in the backward pass of x W."""
    multiply(blas, dy, weight.T, dx, False)
    multiply(blas, x.T, dy, dweight, False)
