"""A matrix product, followed by one kernel for everything that is applied to its result: the
operations of ``reference/math/fused.py``, and their backward passes.

Separate kernels for bias, activation, dropout and residual would each read and write the array.
"""

import cupy

from npformer import reference
from npformer.arrays import as_rows
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.kernels.activations import activate_drop_backward, add_bias_activate_drop
from npformer.gpu.kernels.dropout import add_bias_drop_residual, dropout_backward
from npformer.gpu.kernels.linear import backward_of_rows
from npformer.reference.math.activations import INPUTS


@kernel_of(reference.linear_activation_dropout, as_it_lies="weight")
def linear_activation_dropout(x, weight, bias, activation, dropout_rate, dropout_key):
    h = multiply(as_rows(x), weight)
    n, D = h.shape
    F = D // INPUTS[activation]
    y = cupy.empty((n, F), h.dtype)
    add_bias_activate_drop(h, bias, y, activation, dropout_rate, dropout_key)
    return y.reshape(*x.shape[:-1], F), h.reshape(*x.shape[:-1], D)


@kernel_of(reference.linear_activation_dropout_backward, as_it_lies="weight")
def linear_activation_dropout_backward(
    dy, x, weight, bias, h, activation, dropout_rate, dropout_key
):
    dh = cupy.empty(h.shape, h.dtype)
    activate_drop_backward(dy, h, dh, activation, dropout_rate, dropout_key)
    return backward_of_rows(as_rows(dh), x, weight, bias)


@kernel_of(reference.linear_dropout_residual, as_it_lies="weight")
def linear_dropout_residual(x, weight, bias, residual, dropout_rate, dropout_key):
    y = multiply(as_rows(x), weight)
    add_bias_drop_residual(y, bias, residual, y, dropout_rate, dropout_key)
    return y.reshape(*x.shape[:-1], y.shape[1])


@kernel_of(reference.linear_dropout_residual_backward, as_it_lies="weight")
def linear_dropout_residual_backward(dy, x, weight, bias, dropout_rate, dropout_key):
    dh = as_rows(dropout_backward(dy, dropout_rate, dropout_key))
    return *backward_of_rows(dh, x, weight, bias), dy
