"""Activations."""

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.arrays import contiguous, size_of, suit
from npformer.gpu.launch import for_each_element

CODES = {"relu": np.int32(0), "gelu": np.int32(1), "silu": np.int32(2)}


def relu(x):
    """As ``reference.relu``."""
    return _activate("relu", x)


def relu_backward(dy, x):
    """As ``reference.relu_backward``."""
    return _activate_backward("relu", dy, x)


def gelu(x):
    """As ``reference.gelu``."""
    return _activate("gelu", x)


def gelu_backward(dy, x):
    """As ``reference.gelu_backward``."""
    return _activate_backward("gelu", dy, x)


def silu(x):
    """As ``reference.silu``."""
    return _activate("silu", x)


def silu_backward(dy, x):
    """As ``reference.silu_backward``."""
    return _activate_backward("silu", dy, x)


def _activate(name, x):
    if not suit(x):
        return getattr(reference, name)(x)
    x, y = contiguous(x), cupy.empty(x.shape, x.dtype)
    for_each_element("fused", "activate", x.dtype, x.size, x, y, *size_of(x.size), CODES[name])
    return y


def _activate_backward(name, dy, x):
    if not suit(dy, x) or dy.shape != x.shape:
        return getattr(reference, f"{name}_backward")(dy, x)
    dx = cupy.empty(x.shape, x.dtype)
    arrays = contiguous(dy), contiguous(x), dx
    for_each_element("fused", "activate_backward", x.dtype, x.size, *arrays, *size_of(x.size), CODES[name])
    return dx
