"""Activations, a thread for each element."""

import cupy
import numpy as np

from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.dropout import drawing
from npformer.gpu.launch import for_each_element
from npformer.reference.math.activations import ACTIVATIONS, INPUTS

CODES = {name: np.int32(code) for code, name in enumerate(ACTIVATIONS)}  # as in activations.cuh


def _register(forward, backward, code):
    """Make kernels of an activation with one input for each output, and of its backward pass."""

    @kernel_of(forward)
    def activated(x):
        y = cupy.empty(x.shape, x.dtype)
        for_each_element(
            "fused", "add_bias_activate_drop", x.dtype, x.size, x, None, y, *_options(x, code)
        )
        return y

    @kernel_of(backward)
    def passed_on(dy, x):
        dx = cupy.empty(x.shape, x.dtype)
        for_each_element(
            "fused", "activate_drop_backward", x.dtype, x.size, dy, x, dx, *_options(x, code)
        )
        return dx


def _options(x, code):
    """What the kernels take for no gate and no dropout."""
    return x.size, 1, 1, code, *drawing(0.0, None, x.dtype)


for _name, _operations in ACTIVATIONS.items():
    if INPUTS[_name] == 1:
        _register(*_operations, CODES[_name])
