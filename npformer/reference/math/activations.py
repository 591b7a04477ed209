"""Activation functions, each followed by its backward pass.

They compute each entry alone, so x and the result have the same shape, whatever it is. The
exception is ``swiglu``, which multiplies one half of the last axis by the other: 2·F entries become
F.
"""

import math
from typing import get_args

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation
from npformer.operations.settings import Activation
from npformer.reference.math.normal import limited, normal_density, normal_distribution

GELU_SLOPE = math.sqrt(2 / math.pi)


@operation("x: ... -> y: ...")
def relu(x: Array) -> Array:
    """max(x, 0).

    >>> relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    return np.where(x.real <= 0, 0, x)


@backward_of(relu)
def relu_backward(dy: Array, x: Array) -> Array:
    """dy where x > 0, else 0; the derivative at x = 0 is taken as 0.

    >>> relu_backward(np.array([5.0, 5.0, 5.0]), x=np.array([-1.0, 0.0, 2.0]))
    array([0., 0., 5.])
    """
    return np.where(x.real <= 0, 0, dy)


@operation("x: ... -> y: ...")
def gelu(x: Array) -> Array:
    """x Φ(x) in its tanh approximation (Hendrycks and Gimpel 2016).

    y = ½ x (1 + tanh(u)), with u = √(2/π) (x + 0.044715 x³).

    This is the function of GPT-2; that of BERT is ``gelu_erf``. The two differ by at most 0.0005.

    ½ (1 + tanh(u)) is computed as σ(2u), which is the same: the sum 1 + tanh(u) would lose its
    digits where u is negative.

    >>> gelu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.1588,  0.    ,  0.8412])
    """
    u = _u_of_gelu(x)
    return x * sigmoid(2 * u)


@backward_of(gelu)
def gelu_backward(dy: Array, x: Array) -> Array:
    """dy (½ (1 + t) + ½ x (1 - t²) u'), with t = tanh(u), u' = √(2/π) (1 + 3 · 0.044715 x²).

    With s = σ(2u) = ½ (1 + t), this is dy s (1 + 2 x (1 - s) u').

    >>> x = np.array([-1.0, 0.0, 1.0])
    >>> gelu_backward(np.ones(3), x).round(3)  # the slopes at -x and x add to 1
    array([-0.083,  0.5  ,  1.083])
    """
    x = limited(x, 30)  # beyond it the slope is 0 or 1, and x² may overflow
    u = _u_of_gelu(x)
    s = sigmoid(2 * u)
    slope_u = GELU_SLOPE * (1 + 3 * 0.044715 * x * x)
    return dy * s * (1 + 2 * x * (1 - s) * slope_u)


def _u_of_gelu(x):
    with np.errstate(over="ignore"):  # x³ may be infinite, as σ(2u) is 0 or 1 there
        return GELU_SLOPE * (x + 0.044715 * x * x * x)


@operation("x: ... -> y: ...")
def gelu_erf(x: Array) -> Array:
    """x Φ(x) = ½ x (1 + erf(x/√2)), with the normal distribution's own Φ (Hendrycks and Gimpel
    2016).

    PyTorch's ``gelu`` and Hugging Face's "gelu" are this function, their "tanh" and "gelu_new" are
    ``gelu``. As Φ is computed with small relative errors, so is the result, also far below 0, where
    PyTorch's is 0.

    >>> gelu_erf(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.1587,  0.    ,  0.8413])
    """
    return x * normal_distribution(x)


@backward_of(gelu_erf)
def gelu_erf_backward(dy: Array, x: Array) -> Array:
    """dy (Φ(x) + x φ(x)), where φ = Φ' is the density of the normal distribution.

    >>> x = np.array([-1.0, 0.0, 1.0])
    >>> gelu_erf_backward(np.ones(3), x).round(3)  # the slopes at -x and x add to 1
    array([-0.083,  0.5  ,  1.083])
    """
    x = limited(x, 40)  # beyond it the slope is 0 or 1, and x² may overflow
    slope = normal_distribution(x) + x * normal_density(x)
    return dy * slope


@operation("x: ... -> y: ...")
def silu(x: Array) -> Array:
    """x sigmoid(x), also called swish (Ramachandran et al. 2017).

    >>> silu(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7311])
    """
    return x * sigmoid(x)


@backward_of(silu)
def silu_backward(dy: Array, x: Array) -> Array:
    """dy s (1 + x (1 - s)), with s = sigmoid(x).

    >>> x = np.array([-2.0, 0.0, 2.0])
    >>> silu_backward(np.ones(3), x).round(3)  # the slopes at -x and x add to 1
    array([-0.091,  0.5  ,  1.091])
    """
    s = sigmoid(x)
    return dy * s * (1 + x * (1 - s))


@operation("x: ... -> y: ...")
def tanh(x: Array) -> Array:
    """The hyperbolic tangent.

    >>> tanh(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7616])
    """
    return np.tanh(x)


@backward_of(tanh)
def tanh_backward(dy: Array, y: Array) -> Array:
    """dy (1 - y²): the backward pass needs only the output y.

    >>> y = tanh(np.log([1.0, 3.0]))  # 0 and (3 - 1/3) / (3 + 1/3) = 0.8
    >>> tanh_backward(np.array([10.0, 100.0]), y).round(6)  # 10 · 1 and 100 · 0.36
    array([10., 36.])
    """
    return dy * (1 - y * y)


@operation("x: ... -> y: ...")
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), computed with exponents that are never positive, so that exp cannot
    overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    is_positive = x.real >= 0
    e = np.exp(np.where(is_positive, -x, x))
    return np.where(is_positive, 1, e) / (1 + e)


@backward_of(sigmoid)
def sigmoid_backward(dy: Array, y: Array) -> Array:
    """dy y (1 - y): the backward pass needs only the output y.

    >>> y = sigmoid(np.log([1.0, 3.0]))  # 1/2 and 3/4
    >>> sigmoid_backward(np.array([16.0, 16.0]), y).round(6)
    array([4., 3.])
    """
    return dy * y * (1 - y)


@operation("x: ... 2*F -> y: ... F")
def swiglu(x: Array) -> Array:
    """silu(a) b, where a and b are the two halves of x (Shazeer 2020, "GLU variants improve
    Transformer").

    >>> swiglu(np.array([0.0, 1.0, 10.0, 10.0])).round(4)
    array([0.    , 7.3106])
    """
    a, b = np.split(x, 2, axis=-1)
    return silu(a) * b


@backward_of(swiglu)
def swiglu_backward(dy: Array, x: Array) -> Array:
    """(da, db) concatenated: da = dy b silu'(a), db = dy silu(a).

    >>> a = np.array([0.0, 100.0])  # silu(a) = 0 and 100, silu'(a) = 1/2 and 1
    >>> b = np.array([10.0, 10.0])
    >>> swiglu_backward(np.ones(2), np.concatenate([a, b]))
    array([  5.,  10.,   0., 100.])
    """
    a, b = np.split(x, 2, axis=-1)
    da = silu_backward(dy * b, a)
    db = dy * silu(a)
    return np.concatenate([da, db], axis=-1)


ACTIVATIONS = {
    "relu": (relu, relu_backward),
    "gelu": (gelu, gelu_backward),
    "gelu_erf": (gelu_erf, gelu_erf_backward),
    "silu": (silu, silu_backward),
    "swiglu": (swiglu, swiglu_backward),
}
# How many numbers an activation takes for one output.
INPUTS = {**dict.fromkeys(get_args(Activation), 1), "swiglu": 2}
