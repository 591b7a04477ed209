"""Activations and their derivatives: ``relu``, ``gelu``, ``gelu_erf``, ``silu`` and their backward
passes as operations, and of a row, also ``swiglu``, for the kernels of ``fused`` and of decoding.

Each is one loop of vector instructions, without the arrays between the steps of a formula. A kernel
is compiled for each activation that is used: a branch in the loop would take its vectors away.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba.extending import overload

from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import PART, inlined, kernel
from npformer.cpu.rows import copy_row
from npformer.cpu.scalar import exp, like, limited, normal_distribution, sigmoid
from npformer.reference.math.activations import ACTIVATIONS, GELU_SLOPE, INPUTS
from npformer.runtime.memory import empty

# Each activation is a type, so that kernels are compiled only for those that are used.


class Relu(NamedTuple):
    """max(x, 0)."""


class Gelu(NamedTuple):
    """gelu, approximated by tanh."""


class GeluErf(NamedTuple):
    """gelu, by the normal distribution."""


class Silu(NamedTuple):
    """x σ(x)."""


class SwiGlu(NamedTuple):
    """silu of one half of a row, times the other half."""


class Identity(NamedTuple):
    """No activation."""


KINDS = {"relu": Relu(), "gelu": Gelu(), "gelu_erf": GeluErf(), "silu": Silu(), "swiglu": SwiGlu()}


def _register(forward, backward, kind):
    """Make kernels of an activation with one input for each output, and of its backward pass."""

    @kernel_of(forward)
    def activation(x):
        y = empty(x.shape, x.dtype)
        _activate(kind, x.reshape(-1), y.reshape(-1))
        return y

    @kernel_of(backward)
    def activation_backward(dy, x):
        dx = empty(x.shape, x.dtype)
        np.copyto(dx, dy)
        _multiply_by_slope(kind, dx.reshape(-1), x.reshape(-1))
        return dx


@kernel
def _activate(kind, x, y):
    activate(kind, x, y)


@kernel
def _multiply_by_slope(kind, dx, x):
    multiply_by_slope(kind, dx, x)


def activate(kind, x, y):
    """y = activation(x) of one row. Each has a loop of its own: LLVM does not vectorise a loop with
    a branch in it.
    """
    ROW_LOOPS[type(kind)].activate(x, y)


def multiply_by_slope(kind, dx, x):
    """dx *= activation'(x) of one row. For SwiGlu the first half of dx is dy, from which both
    halves are computed.
    """
    ROW_LOOPS[type(kind)].multiply_by_slope(dx, x)


@overload(activate, jit_options=PART, strict=False)
def _compiled_activate(kind, x, y):
    loop = ROW_LOOPS[kind.instance_class].activate
    return lambda kind, x, y: loop(x, y)


@overload(multiply_by_slope, jit_options=PART, strict=False)
def _compiled_multiply_by_slope(kind, dx, x):
    loop = ROW_LOOPS[kind.instance_class].multiply_by_slope
    return lambda kind, dx, x: loop(dx, x)


class RowLoops(NamedTuple):
    """The loops over a row of one activation, which are inlined into kernels."""

    activate: Callable
    multiply_by_slope: Callable


def _loops_of(activation, backward):
    """The loops of ``y = activation(x)`` and ``dx = backward(dy, x)``, which take one number."""

    @inlined
    def activate_row(x, y):
        for i in range(x.size):
            y[i] = activation(x[i])

    @inlined
    def multiply_row(dx, x):
        for i in range(x.size):
            dx[i] = backward(dx[i], x[i])

    return RowLoops(activate_row, multiply_row)


@inlined
def _relu(x):
    return like(x, 0) if x <= like(x, 0) else x


@inlined
def _relu_backward(dy, x):
    return like(x, 0) if x <= like(x, 0) else dy


@inlined
def _gelu(x):
    return x * _gelu_gate(x)


@inlined
def _gelu_backward(dy, x):
    """The slope is σ(2u) + x σ'(2u) 2u': 0 below -30, and 1 above 30, where 2u' may overflow."""
    x = limited(x, 30)
    s = _gelu_gate(x)
    twice_inner_slope = like(x, 2 * GELU_SLOPE) * (like(x, 1) + like(x, 3 * 0.044715) * x * x)
    return dy * (s * (like(x, 1) + x * (like(x, 1) - s) * twice_inner_slope))


@inlined
def _gelu_gate(x):
    """½ (1 + tanh(u)) as σ(2u), in which nothing cancels where u is negative."""
    return sigmoid(like(x, 2 * GELU_SLOPE) * (x + like(x, 0.044715) * x * x * x))


@inlined
def _gelu_erf(x):
    return x * normal_distribution(x)


@inlined
def _gelu_erf_backward(dy, x):
    """The slope is Φ(x) + x φ(x): 0 below -40, and 1 above 40, where x² may overflow."""
    x = limited(x, 40)
    density = like(x, 1 / math.sqrt(2 * math.pi)) * exp(like(x, -0.5) * x * x)
    return dy * (normal_distribution(x) + x * density)


@inlined
def _silu(x):
    return x * sigmoid(x)


@inlined
def _silu_backward(dy, x):
    return dy * _silu_slope(x)


@inlined
def _silu_slope(x):
    s = sigmoid(x)
    return s * (like(x, 1) + x * (like(x, 1) - s))


@inlined
def _swiglu(x, y):
    for i in range(y.size):
        y[i] = x[i] * sigmoid(x[i]) * x[y.size + i]


@inlined
def _swiglu_backward(dx, x):
    F = x.size // 2
    for i in range(F):
        dx[F + i] = dx[i] * x[i] * sigmoid(x[i])
        dx[i] *= x[F + i] * _silu_slope(x[i])


@inlined
def _nothing(dx, x):
    """The slope of no activation is 1."""


ROW_LOOPS = {
    Relu: _loops_of(_relu, _relu_backward),
    Gelu: _loops_of(_gelu, _gelu_backward),
    GeluErf: _loops_of(_gelu_erf, _gelu_erf_backward),
    Silu: _loops_of(_silu, _silu_backward),
    SwiGlu: RowLoops(_swiglu, _swiglu_backward),
    Identity: RowLoops(copy_row, _nothing),
}

for _name, _operations in ACTIVATIONS.items():
    if INPUTS[_name] == 1:
        _register(*_operations, KINDS[_name])
