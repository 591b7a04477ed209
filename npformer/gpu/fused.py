"""A matrix product, and everything that follows it in one pass over the result."""

import cupy

from npformer import reference
from npformer.gpu.activations import CODES
from npformer.gpu.arrays import as_rows, contiguous, size_of
from npformer.gpu.blas import multiply
from npformer.gpu.dropout import drawing, dropout_backward
from npformer.gpu.launch import for_each_element
from npformer.gpu.linear import backward_of_rows, fits, fits_result
from npformer.reference.checks import check_rate
from npformer.reference.fused import check_activation


def linear_activation_dropout(x, weight, bias, activation, rate=0.0, key=None):
    """As ``reference.linear_activation_dropout``."""
    check_activation(activation)
    check_rate(rate, key)
    if bias is None or not fits(x, weight, bias):
        return reference.linear_activation_dropout(x, weight, bias, activation, rate, key)
    h = multiply(as_rows(x), weight)
    y = cupy.empty(h.shape, h.dtype)
    arrays = h, contiguous(bias), y, *size_of(h.size, h.shape[1])
    draw = drawing(rate, key, h.dtype)
    for_each_element("fused", "add_bias_activate_drop", h.dtype, h.size, *arrays, CODES[activation], *draw)
    shape = (*x.shape[:-1], weight.shape[1])
    return y.reshape(shape), h.reshape(shape)


def linear_activation_dropout_backward(dy, x, weight, bias, h, activation, rate=0.0, key=None):
    """As ``reference.linear_activation_dropout_backward``."""
    check_activation(activation)
    check_rate(rate, key)
    if bias is None or not (fits(x, weight, bias) and fits_result(dy, x, weight) and fits_result(h, x, weight)):
        return reference.linear_activation_dropout_backward(dy, x, weight, bias, h, activation, rate, key)
    dy, h = as_rows(dy), as_rows(h)
    dh = cupy.empty(h.shape, h.dtype)
    draw = drawing(rate, key, h.dtype)
    for_each_element(
        "fused", "activate_drop_backward", h.dtype, h.size, dy, h, dh, *size_of(h.size), CODES[activation], *draw
    )
    return backward_of_rows(dh, x, weight)


def linear_dropout_residual(x, weight, bias, residual, rate=0.0, key=None):
    """As ``reference.linear_dropout_residual``."""
    check_rate(rate, key)
    if bias is None or not fits(x, weight, bias) or residual is None or not fits_result(residual, x, weight):
        return reference.linear_dropout_residual(x, weight, bias, residual, rate, key)
    y = multiply(as_rows(x), weight)
    arrays = y, contiguous(bias), contiguous(residual), *size_of(y.size, y.shape[1])
    draw = drawing(rate, key, y.dtype)
    for_each_element("fused", "add_bias_drop_residual", y.dtype, y.size, *arrays, *draw)
    return y.reshape(residual.shape)


def linear_dropout_residual_backward(dy, x, weight, bias, rate=0.0, key=None):
    """As ``reference.linear_dropout_residual_backward``."""
    check_rate(rate, key)
    if bias is None or not (fits(x, weight, bias) and fits_result(dy, x, weight)):
        return reference.linear_dropout_residual_backward(dy, x, weight, bias, rate, key)
    dh = as_rows(dropout_backward(dy, rate, key))
    return *backward_of_rows(dh, x, weight), dy
