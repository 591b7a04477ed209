"""Activations and their slopes, of one number for the kernels and of arrays for everybody."""

import math

import numpy as np

from npformer import reference
from npformer.cpu.arrays import suit
from npformer.cpu.jit import kernel
from npformer.cpu.memory import empty
from npformer.cpu.scalar import like, sigmoid, tanh

RELU, GELU, SILU = range(3)
CODES = {"relu": RELU, "gelu": GELU, "silu": SILU}
_GELU_SLOPE = math.sqrt(2 / math.pi)


def relu(x):
    """As ``reference.relu``."""
    return _activated(x, RELU) if suit(x) else reference.relu(x)


def relu_backward(dy, x):
    """As ``reference.relu_backward``."""
    return _passed_on(dy, x, RELU) if _suit_backward(dy, x) else reference.relu_backward(dy, x)


def gelu(x):
    """As ``reference.gelu``."""
    return _activated(x, GELU) if suit(x) else reference.gelu(x)


def gelu_backward(dy, x):
    """As ``reference.gelu_backward``."""
    return _passed_on(dy, x, GELU) if _suit_backward(dy, x) else reference.gelu_backward(dy, x)


def silu(x):
    """As ``reference.silu``."""
    return _activated(x, SILU) if suit(x) else reference.silu(x)


def silu_backward(dy, x):
    """As ``reference.silu_backward``."""
    return _passed_on(dy, x, SILU) if _suit_backward(dy, x) else reference.silu_backward(dy, x)


def _suit_backward(dy, x):
    return suit(dy, x) and dy.shape == x.shape


def _activated(x, code):
    y = empty(x.shape, x.dtype)
    activate(np.ascontiguousarray(x).reshape(-1), y.reshape(-1), code)
    return y


def _passed_on(dy, x, code):
    dx = empty(x.shape, x.dtype)
    np.copyto(dx, dy)
    multiply_by_slope(dx.reshape(-1), np.ascontiguousarray(x).reshape(-1), code)
    return dx


@kernel
def activate(x, y, code):
    """y = activation(x) of one row. A loop each: with the choice inside it, LLVM writes no vector code."""
    if code == RELU:
        for i in range(x.size):
            y[i] = like(x[i], 0) if x[i] <= like(x[i], 0) else x[i]
    elif code == GELU:
        for i in range(x.size):
            y[i] = like(x[i], 0.5) * x[i] * (like(x[i], 1) + tanh(_gelu_inner(x[i])))
    else:
        for i in range(x.size):
            y[i] = x[i] * sigmoid(x[i])


@kernel
def multiply_by_slope(dx, x, code):
    """dx *= activation'(x) of one row; where dx is 0 it stays 0, whatever x is."""
    if code == RELU:
        for i in range(x.size):
            dx[i] = like(x[i], 0) if x[i] <= like(x[i], 0) else dx[i]
    elif code == GELU:
        for i in range(x.size):
            dx[i] = dx[i] * _gelu_slope(x[i]) if dx[i] != like(x[i], 0) else like(x[i], 0)
    else:
        for i in range(x.size):
            dx[i] = dx[i] * _silu_slope(x[i]) if dx[i] != like(x[i], 0) else like(x[i], 0)


@kernel
def _gelu_inner(x):
    return like(x, _GELU_SLOPE) * (x + like(x, 0.044715) * x * x * x)


@kernel
def _gelu_slope(x):
    t = tanh(_gelu_inner(x))
    inner_slope = like(x, _GELU_SLOPE) * (like(x, 1) + like(x, 3 * 0.044715) * x * x)
    return like(x, 0.5) * (like(x, 1) + t + x * (like(x, 1) - t * t) * inner_slope)


@kernel
def _silu_slope(x):
    s = sigmoid(x)
    return s * (like(x, 1) + x * (like(x, 1) - s))
