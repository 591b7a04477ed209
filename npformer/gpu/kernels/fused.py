"""A matrix product, followed by one kernel for everything that is applied to its result."""

import cupy

from npformer import reference
from npformer.arrays import as_rows
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.kernels.activations import CODES
from npformer.gpu.kernels.dropout import drawing, dropout_backward
from npformer.gpu.kernels.linear import backward_of_rows
from npformer.gpu.launch import for_each_element
from npformer.reference.math.activations import INPUTS


@kernel_of(reference.linear_activation_dropout, as_it_lies="weight")
def linear_activation_dropout(x, weight, bias, activation, dropout_rate, dropout_key):
    h = multiply(as_rows(x), weight)
    gates = INPUTS[activation]
    y = cupy.empty((len(h), h.shape[1] // gates), h.dtype)
    code = CODES["silu" if gates > 1 else activation]
    options = y.size, y.shape[1], gates, code, *drawing(dropout_rate, dropout_key, h.dtype)
    for_each_element("fused", "add_bias_activate_drop", h.dtype, y.size, h, bias, y, *options)
    return y.reshape(*x.shape[:-1], y.shape[1]), h.reshape(*x.shape[:-1], h.shape[1])


@kernel_of(reference.linear_activation_dropout_backward, as_it_lies="weight")
def linear_activation_dropout_backward(
    dy, x, weight, bias, h, activation, dropout_rate, dropout_key
):
    dh = cupy.empty(h.shape, h.dtype)
    gates = INPUTS[activation]
    code = CODES["silu" if gates > 1 else activation]
    options = dy.size, dy.shape[-1], gates, code, *drawing(dropout_rate, dropout_key, h.dtype)
    for_each_element("fused", "activate_drop_backward", h.dtype, dy.size, dy, h, dh, *options)
    return backward_of_rows(as_rows(dh), x, weight, bias)


@kernel_of(reference.linear_dropout_residual, as_it_lies="weight")
def linear_dropout_residual(x, weight, bias, residual, dropout_rate, dropout_key):
    y = multiply(as_rows(x), weight)
    options = y.size, y.shape[1], *drawing(dropout_rate, dropout_key, y.dtype)
    for_each_element(
        "fused", "add_bias_drop_residual", y.dtype, y.size, y, bias, residual, y, *options
    )
    return y.reshape(*x.shape[:-1], y.shape[1])


@kernel_of(reference.linear_dropout_residual_backward, as_it_lies="weight")
def linear_dropout_residual_backward(dy, x, weight, bias, dropout_rate, dropout_key):
    dh = as_rows(dropout_backward(dy, dropout_rate, dropout_key))
    return *backward_of_rows(dh, x, weight, bias), dy
