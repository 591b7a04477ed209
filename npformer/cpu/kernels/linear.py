"""The linear map: products of two-dimensional matrices, written to recycled memory."""

import numpy as np

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu.backend import as_matrix, kernel_of, ops, suited
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.sums import add_rows
from npformer.cpu.team import JIT, WORTH_IT, helper_for, multiply_few_rows, panels_of
from npformer.quantized import Quantized
from npformer.runtime.memory import empty
from npformer.runtime.threads import FEW_ROWS, by_rows, even_slices, n_kernel_threads

NOTHING = {dtype: np.empty(0, dtype) for dtype in BLAS}  # in place of a bias, or of scales


@kernel_of(reference.linear, as_it_lies="weight")
def linear(x, weight, bias):
    y = empty((*x.shape[:-1], weight.shape[1]), x.dtype)
    bias = NOTHING[x.dtype] if bias is None else bias
    blas, x, matrix, rows = BLAS[x.dtype], as_rows(x), as_matrix(weight), as_rows(y)
    if n_kernel_threads() and weight.size >= WORTH_IT:
        map_few_rows(helper_for(x.dtype), blas, x, matrix, *[NOTHING[x.dtype]] * 2, bias, rows)
    else:
        by_rows(lambda part: _map(blas, x[part], matrix, bias, rows[part]), len(x), weight.size)
    return y


@kernel_of(reference.linear_backward, as_it_lies="weight")
def linear_backward(dy, x, weight, bias):
    dx, dweight, dbias = empty(x.shape, x.dtype), empty(weight.shape, x.dtype), np.empty(weight.shape[1], x.dtype)
    _map_backward(BLAS[x.dtype], as_rows(dy), as_rows(x), as_matrix(weight), as_rows(dx), dweight, dbias)
    return dx, dweight, None if bias is None else dbias


def few_rows_linear(weight, bias, max_rows, n_steps):
    """A linear map for the rows of some steps of decoding, as a function, if its weight is ``Quantized`` or copied.

    None if it is neither, or of a dtype without a kernel. The function returns ``NotImplemented`` for x of another one.
    """
    dtype, width = weight.dtype, weight.shape[1]
    if dtype not in BLAS or (bias is not None and bias.dtype != dtype):
        return None
    scale = panels = NOTHING[dtype]
    if isinstance(weight, Quantized):
        scale, weight = np.ascontiguousarray(weight.scale.ravel()), np.ascontiguousarray(weight.values.T)
    else:
        weight = as_matrix(_suited(weight))
        [panels] = panels_of([weight], max_rows, n_steps)
        if not len(panels):
            return None
    bias, blas = NOTHING[dtype] if bias is None else _suited(bias), BLAS[dtype]

    def apply(x):
        if x.dtype != dtype:
            return NotImplemented
        y = empty((len(x), width), dtype)
        for part in even_slices(len(x), -(-len(x) // FEW_ROWS)):
            map_few_rows(helper_for(dtype, weight.dtype), blas, x[part], weight, panels, scale, bias, y[part])
        return y

    return apply


def _suited(x):
    convert = suited(x, as_it_lies=x.ndim > 1)
    return convert(x) if convert else x


if JIT:
    ops.hooks["few_rows_linear"] = few_rows_linear


@kernel
def _map(blas, x, weight, bias, y):
    multiply(blas, x, weight, y, False)
    _add_bias(y, bias)


@inlined
def map_few_rows(helper, blas, x, weight, panels, scale, bias, y):
    """``_map``, with the product shared between threads by ``team``; the columns of the weight may have scales."""
    multiply_few_rows(helper, blas, x, weight, panels, y)
    for i in range(len(y)):
        for j in range(len(scale)):
            y[i, j] *= scale[j]
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
