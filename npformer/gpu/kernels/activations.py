"""Activations, a thread for each element."""

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.launch import for_each_element
from npformer.reference.math.activations import ACTIVATIONS

CODES = {name: np.int32(code) for code, name in enumerate(ACTIVATIONS)}  # as in activations.cuh


@kernel_of(reference.relu)
def relu(x):
    return _activate(x, CODES["relu"])


@kernel_of(reference.relu_backward)
def relu_backward(dy, x):
    return _activate_backward(dy, x, CODES["relu"])


@kernel_of(reference.gelu)
def gelu(x):
    return _activate(x, CODES["gelu"])


@kernel_of(reference.gelu_backward)
def gelu_backward(dy, x):
    return _activate_backward(dy, x, CODES["gelu"])


@kernel_of(reference.gelu_erf)
def gelu_erf(x):
    return _activate(x, CODES["gelu_erf"])


@kernel_of(reference.gelu_erf_backward)
def gelu_erf_backward(dy, x):
    return _activate_backward(dy, x, CODES["gelu_erf"])


@kernel_of(reference.silu)
def silu(x):
    return _activate(x, CODES["silu"])


@kernel_of(reference.silu_backward)
def silu_backward(dy, x):
    return _activate_backward(dy, x, CODES["silu"])


def _activate(x, code):
    y = cupy.empty(x.shape, x.dtype)
    for_each_element("activations", "activate", x.dtype, x.size, x, y, x.size, code)
    return y


def _activate_backward(dy, x, code):
    dx = cupy.empty(x.shape, x.dtype)
    for_each_element("activations", "activate_backward", x.dtype, x.size, dy, x, dx, x.size, code)
    return dx
