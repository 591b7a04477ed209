"""Activations and their derivatives: ``relu``, ``gelu``, ``gelu_erf``, ``silu`` and their backward
passes, a thread for each element; for ``fused`` also ``swiglu``, with bias and dropout.
"""

import cupy
import numpy as np

from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.dropout import dropout_arguments
from npformer.gpu.launch import element_kernel
from npformer.reference.math.activations import ACTIVATIONS, INPUTS

# As in activations.cuh. The kernels multiply silu of one half of a row by the other half, the gate.
WITHOUT_GATE = [name for name, n_inputs in INPUTS.items() if n_inputs == 1]
CODES = {name: np.int32(code) for code, name in enumerate(WITHOUT_GATE)}
CODES["swiglu"] = CODES["silu"]


def _register(name, forward, backward):
    """Make kernels of an activation with one input for each output, and of its backward pass."""

    @kernel_of(forward)
    def activation(x):
        y = cupy.empty(x.shape, x.dtype)
        add_bias_activate_drop(x, None, y, name, 0.0, None)
        return y

    @kernel_of(backward)
    def activation_backward(dy, x):
        dx = cupy.empty(x.shape, x.dtype)
        activate_drop_backward(dy, x, dx, name, 0.0, None)
        return dx


for _name, _operations in ACTIVATIONS.items():
    if INPUTS[_name] == 1:
        _register(_name, *_operations)


def add_bias_activate_drop(h, bias, y, activation, dropout_rate, dropout_key):
    """h += bias, unless it is None, and y = dropout(activation(h))."""
    n_gates = INPUTS[activation]
    n_columns = y.shape[-1] if y.ndim else 1
    drop = dropout_arguments(dropout_rate, dropout_key, h.dtype)
    kernel = element_kernel("fused", "add_bias_activate_drop", h.dtype, y.size)
    # add_bias_activate_drop(h, bias, y, size, n_columns, n_gates, code, key, threshold, kept_scale)
    kernel(h, bias, y, y.size, n_columns, n_gates, CODES[activation], *drop)


def activate_drop_backward(dy, h, dh, activation, dropout_rate, dropout_key):
    """dh of y = dropout(activation(h))."""
    n_gates = INPUTS[activation]
    n_columns = dy.shape[-1] if dy.ndim else 1
    drop = dropout_arguments(dropout_rate, dropout_key, h.dtype)
    kernel = element_kernel("fused", "activate_drop_backward", h.dtype, dy.size)
    # activate_drop_backward(dy, h, dh, size, n_columns, n_gates, code, key, threshold, kept_scale)
    kernel(dy, h, dh, dy.size, n_columns, n_gates, CODES[activation], *drop)
