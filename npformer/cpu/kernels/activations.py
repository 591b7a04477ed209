"""Activations and their derivatives: of rows for the other kernels, and of whole arrays as operations."""

import math

import numpy as np

from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import inlined
from npformer.cpu.scalar import exp, like, normal_distribution, sigmoid
from npformer.reference.math.activations import ACTIVATIONS, GELU_SLOPE, INPUTS
from npformer.runtime.memory import empty

RELU, GELU, GELU_ERF, SILU, SWIGLU = range(5)
CODES = {name: code for code, name in enumerate(ACTIVATIONS)}


def _register(forward, backward, code):
    """Make kernels of an activation that has one input for each output, and of its backward pass."""

    @kernel_of(forward)
    def activated(x):
        y = empty(x.shape, x.dtype)
        activate(x.reshape(-1), y.reshape(-1), code)
        return y

    @kernel_of(backward)
    def passed_on(dy, x):
        dx = empty(x.shape, x.dtype)
        np.copyto(dx, dy)
        multiply_by_slope(dx.reshape(-1), x.reshape(-1), code)
        return dx


@inlined
def activate(x, y, code):
    """y = activation(x) of one row. Each has a loop of its own: LLVM does not vectorise a loop with a branch in it."""
    if code == RELU:
        for i in range(x.size):
            y[i] = like(x[i], 0) if x[i] <= like(x[i], 0) else x[i]
    elif code == GELU:
        for i in range(x.size):
            y[i] = x[i] * _gelu_gate(x[i])
    elif code == GELU_ERF:
        for i in range(x.size):
            y[i] = x[i] * normal_distribution(x[i])
    elif code == SILU:
        for i in range(x.size):
            y[i] = x[i] * sigmoid(x[i])
    else:
        for i in range(y.size):
            y[i] = x[i] * sigmoid(x[i]) * x[y.size + i]


@inlined
def multiply_by_slope(dx, x, code):
    """dx *= activation'(x) of one row. For SWIGLU the first half of dx is dy, from which both halves are computed."""
    if code == RELU:
        for i in range(x.size):
            dx[i] = like(x[i], 0) if x[i] <= like(x[i], 0) else dx[i]
    elif code == GELU:
        for i in range(x.size):
            dx[i] *= _gelu_slope(x[i])
    elif code == GELU_ERF:
        for i in range(x.size):
            dx[i] *= _gelu_erf_slope(x[i])
    elif code == SILU:
        for i in range(x.size):
            dx[i] *= _silu_slope(x[i])
    else:
        F = x.size // 2
        for i in range(F):
            dx[F + i] = dx[i] * x[i] * sigmoid(x[i])
            dx[i] *= x[F + i] * _silu_slope(x[i])


@inlined
def _gelu_gate(x):
    """½ (1 + tanh(u)) as σ(2u), in which nothing cancels where u is negative."""
    return sigmoid(like(x, 2 * GELU_SLOPE) * (x + like(x, 0.044715) * x * x * x))


@inlined
def _gelu_slope(x):
    """σ(2u) + x σ'(2u) 2u': 0 below -30, and 1 above 30, where 2u' may overflow."""
    x = _limited(x, 30)
    s = _gelu_gate(x)
    twice_inner_slope = like(x, 2 * GELU_SLOPE) * (like(x, 1) + like(x, 3 * 0.044715) * x * x)
    return s * (like(x, 1) + x * (like(x, 1) - s) * twice_inner_slope)


@inlined
def _gelu_erf_slope(x):
    """Φ(x) + x φ(x): 0 below -40, and 1 above 40, where x² may overflow."""
    x = _limited(x, 40)
    density = like(x, 1 / math.sqrt(2 * math.pi)) * exp(like(x, -0.5) * x * x)
    return normal_distribution(x) + x * density


@inlined
def _limited(x, most):
    return like(x, -most) if x < like(x, -most) else like(x, most) if x > like(x, most) else x


@inlined
def _silu_slope(x):
    s = sigmoid(x)
    return s * (like(x, 1) + x * (like(x, 1) - s))


for _name, _operations in ACTIVATIONS.items():
    if INPUTS[_name] == 1:
        _register(*_operations, CODES[_name])
