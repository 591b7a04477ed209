"""Activations, each with its derivative underneath.

Where dy is exactly 0, so is the gradient, even if x holds NaN: padding that nothing depends on stays without effect.
"""

import math

from npformer.reference.arrays import Array, namespace, narrow, quiet, widen
from npformer.reference.checks import check_shape

_GELU_SLOPE = math.sqrt(2 / math.pi)


def relu(x: Array) -> Array:
    """max(x, 0).

    Examples
    --------
    >>> import numpy as np
    >>> relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    xp = namespace(x=x)
    return xp.where(x.real <= 0, 0, x)


def relu_backward(dy: Array, x: Array) -> Array:
    """dy where x > 0; at the kink itself the derivative is taken as 0."""
    xp = namespace(dy=dy, x=x)
    check_shape(dy=(dy, x.shape))
    return xp.where(x.real <= 0, 0, dy)


def gelu(x: Array) -> Array:
    """x Φ(x) in its tanh form (Hendrycks and Gimpel 2016): ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))).

    Examples
    --------
    >>> import numpy as np
    >>> gelu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.1588,  0.    ,  0.8412])
    """
    xp = namespace(x=x)
    wide = widen(x)  # 41³ is too large for half precision
    y = 0.5 * wide * (1 + xp.tanh(_GELU_SLOPE * (wide + 0.044715 * wide * wide * wide)))
    return narrow(y, x)


@quiet
def gelu_backward(dy: Array, x: Array) -> Array:
    """dy (½ (1 + t) + ½ x (1 - t²) u'), with t = tanh(u), u' = √(2/π) (1 + 3 · 0.044715 x²)."""
    xp = namespace(dy=dy, x=x)
    check_shape(dy=(dy, x.shape))
    wide = widen(x)
    t = xp.tanh(_GELU_SLOPE * (wide + 0.044715 * wide * wide * wide))
    du = _GELU_SLOPE * (1 + 3 * 0.044715 * wide * wide)
    dx = dy * 0.5 * (1 + t + wide * (1 - t * t) * du)
    return narrow(xp.where(dy == 0, 0, dx), x)


def silu(x: Array) -> Array:
    """x sigmoid(x), also called swish (Ramachandran et al. 2017).

    Examples
    --------
    >>> import numpy as np
    >>> silu(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7311])
    """
    return x * sigmoid(x)


@quiet
def silu_backward(dy: Array, x: Array) -> Array:
    """dy s (1 + x (1 - s)), with s = sigmoid(x)."""
    xp = namespace(dy=dy, x=x)
    check_shape(dy=(dy, x.shape))
    s = sigmoid(x)
    return xp.where(dy == 0, 0, dy * s * (1 + x * (1 - s)))


def tanh(x: Array) -> Array:
    """The hyperbolic tangent.

    Examples
    --------
    >>> import numpy as np
    >>> tanh(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.7616])
    """
    return namespace(x=x).tanh(x)


@quiet
def tanh_backward(dy: Array, y: Array) -> Array:
    """dy (1 - y²): the output is all that has to be kept."""
    xp = namespace(dy=dy, y=y)
    check_shape(dy=(dy, y.shape))
    return xp.where(dy == 0, 0, dy * (1 - y * y))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), with the exponent never positive, so that nothing overflows.

    Examples
    --------
    >>> import numpy as np
    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    xp = namespace(x=x)
    e = xp.exp(xp.where(x.real >= 0, -x, x))
    return xp.where(x.real >= 0, 1, e) / (1 + e)


@quiet
def sigmoid_backward(dy: Array, y: Array) -> Array:
    """dy y (1 - y): the output is all that has to be kept."""
    xp = namespace(dy=dy, y=y)
    check_shape(dy=(dy, y.shape))
    return xp.where(dy == 0, 0, dy * y * (1 - y))
