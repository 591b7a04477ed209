"""A matrix product and everything that follows it, in one kernel: the operations of
``reference/math/fused.py``, and their backward passes.

Bias, activation, dropout and residual are applied to a row while it is in the cache, where separate
operations would each read and write the whole array. No Python code runs in between, so threads
with different rows do not wait for each other.
"""

import numpy as np

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu.backend import kernel_of, original
from npformer.cpu.draws import dropout_arguments
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.kernels.activations import KINDS, Identity, activate, multiply_by_slope
from npformer.cpu.kernels.dropout import drop_row
from npformer.cpu.kernels.linear import (
    by_rows,
    gradients_of_parameters,
    map_rows,
    multiply_by,
    multiply_by_transposed,
)
from npformer.cpu.linear_maps import NOTHING
from npformer.cpu.rows import add_row
from npformer.cpu.scalar import like
from npformer.reference.math.activations import INPUTS
from npformer.runtime.memory import empty
from npformer.runtime.threads import n_kernel_threads


@kernel_of(reference.linear_activation_dropout, as_it_lies="weight")
def linear_activation_dropout(x, weight, bias, activation, dropout_rate, dropout_key):
    width = weight.shape[1]
    bias = np.zeros(width, x.dtype) if bias is None else bias
    h = empty((*x.shape[:-1], width), x.dtype)
    y = empty((*x.shape[:-1], width // INPUTS[activation]), x.dtype)
    kind = KINDS[activation]
    dropout = dropout_arguments(dropout_rate, dropout_key, x.dtype)
    x_rows, h_rows, y_rows = map(as_rows, (x, h, y))
    if n_kernel_threads():  # then the threads share the product
        map_rows(x_rows, weight, NOTHING[x.dtype], h_rows)
        _activate(h_rows, y_rows, 0, bias, kind, dropout)
    else:
        by_rows(_map_and_activate, (x_rows, h_rows, y_rows), weight, bias, kind, dropout)
    return y, h


@kernel_of(reference.linear_activation_dropout_backward, as_it_lies="weight")
def linear_activation_dropout_backward(
    dy, x, weight, bias, h, activation, dropout_rate, dropout_key
):
    dropout = dropout_arguments(dropout_rate, dropout_key, x.dtype)
    return _gradients(dy, x, weight, bias, h, KINDS[activation], dropout)


@kernel_of(reference.linear_dropout_residual, as_it_lies="weight")
def linear_dropout_residual(x, weight, bias, residual, dropout_rate, dropout_key):
    width = weight.shape[1]
    bias = np.zeros(width, x.dtype) if bias is None else bias
    y = empty((*x.shape[:-1], width), x.dtype)
    dropout = dropout_arguments(dropout_rate, dropout_key, x.dtype)
    x_rows, y_rows, residual_rows = map(as_rows, (x, y, residual))
    if n_kernel_threads():  # then the threads share the product
        map_rows(x_rows, weight, NOTHING[x.dtype], y_rows)
        _drop_and_add(y_rows, residual_rows, 0, bias, dropout)
    else:
        by_rows(_map_drop_and_add, (x_rows, y_rows, residual_rows), weight, bias, dropout)
    return y


@kernel_of(reference.linear_dropout_residual_backward, as_it_lies="weight")
def linear_dropout_residual_backward(dy, x, weight, bias, dropout_rate, dropout_key):
    dropout = dropout_arguments(dropout_rate, dropout_key, x.dtype)
    return *_gradients(dy, x, weight, bias, None, Identity(), dropout), original(dy)


def _gradients(dy, x, weight, bias, h, kind, dropout):
    """(dx, dweight, dbias) of dropout(activation(h)), where h = x W + b; without activation h is
    None.
    """
    dx = empty(x.shape, x.dtype)
    dh = empty((x.size // x.shape[-1], weight.shape[1]), x.dtype)
    h = dh if h is None else as_rows(h)
    by_rows(_activate_backward, (as_rows(dy), h, dh, as_rows(dx)), weight, kind, dropout)
    dweight, dbias = gradients_of_parameters(as_rows(x), dh, weight)
    return dx, dweight, None if bias is None else dbias


# A kernel gets some rows of its first matrices, and the number of the ``first`` of them among all
# rows: dropout draws by the position in the whole matrix.


@kernel
def _map_and_activate(x, h, y, first, weight_for_blas, bias, kind, dropout):
    multiply_by(x, weight_for_blas, h)
    _activate(h, y, first, bias, kind, dropout)


@inlined
def _activate(h, y, first, bias, kind, dropout):
    n, F = y.shape
    _, kept_scale = dropout
    for i in range(n):
        add_row(bias, h[i])
        activate(kind, h[i], y[i])
        if kept_scale != like(kept_scale, 1):
            drop_row(y[i], y[i], (first + i) * F, dropout)


@kernel
def _activate_backward(dy, h, dh, dx, first, weight_for_blas, kind, dropout):
    n, F = dy.shape
    for i in range(n):
        drop_row(dy[i], dh[i, :F], (first + i) * F, dropout)
        multiply_by_slope(kind, dh[i], h[i])
    multiply_by_transposed(dh, weight_for_blas, dx)


@kernel
def _map_drop_and_add(x, y, residual, first, weight_for_blas, bias, dropout):
    multiply_by(x, weight_for_blas, y)
    _drop_and_add(y, residual, first, bias, dropout)


@inlined
def _drop_and_add(y, residual, first, bias, dropout):
    n, D = y.shape
    _, kept_scale = dropout
    for i in range(n):
        add_row(bias, y[i])
        if kept_scale != like(kept_scale, 1):
            drop_row(y[i], y[i], (first + i) * D, dropout)
        add_row(residual[i], y[i])
