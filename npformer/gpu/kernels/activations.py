"""Activations, a thread for each element."""

import cupy
import numpy as np

from npformer.gpu.backend import kernel_of
from npformer.gpu.launch import for_each_element
from npformer.reference.math.activations import ACTIVATIONS, INPUTS

CODES = {name: np.int32(code) for code, name in enumerate(ACTIVATIONS)}  # as in activations.cuh


def _register(forward, backward, code):
    """Make kernels of an activation that has one input for each output, and of its backward pass."""

    @kernel_of(forward)
    def activated(x):
        y = cupy.empty(x.shape, x.dtype)
        for_each_element("activations", "activate", x.dtype, x.size, x, y, x.size, code)
        return y

    @kernel_of(backward)
    def passed_on(dy, x):
        dx = cupy.empty(x.shape, x.dtype)
        for_each_element("activations", "activate_backward", x.dtype, x.size, dy, x, dx, x.size, code)
        return dx


for _name, _operations in ACTIVATIONS.items():
    if INPUTS[_name] == 1:
        _register(*_operations, CODES[_name])
