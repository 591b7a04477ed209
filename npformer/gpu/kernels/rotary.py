"""Rotary positions: ``reference.rotary`` and its backward pass, in one pass over the array, without
arrays of cosines and sines.
"""

from functools import lru_cache

import cupy
import numpy as np

from npformer.gpu.backend import kernel_of
from npformer.gpu.launch import element_kernel
from npformer.gpu.memory import lasting
from npformer.kernels.shared import make_rotary_kernels
from npformer.reference.math.rotary import angles


def _turned(x, positions, n_heads, n_plain, base, scaling, pairs, llama3):
    """The rows of x, turned by the angles of their positions."""
    K = x.shape[-1] // (n_heads + n_plain)
    n_rows = x.size // x.shape[-1]
    size = n_rows * K // 2
    positions = cupy.ascontiguousarray(cupy.broadcast_to(positions, x.shape[:-1]))
    is_halves = pairs == "halves"
    frequencies = _frequencies(K, base, llama3)
    y = cupy.empty(x.shape, x.dtype)
    kernel = element_kernel("rotary", "rotary", x.dtype, size)
    # rotary(x, positions, frequencies, y, size, K, n_heads, n_plain, scaling, halves)
    kernel(x, positions, frequencies, y, size, K, n_heads, n_plain, np.float64(scaling), is_halves)
    return y


make_rotary_kernels(kernel_of, _turned)


@lru_cache(maxsize=64)
def _frequencies(K, base, llama3):
    """The angles of position 1, with the bits of the reference: other positions multiply a
    difference.
    """
    with lasting():
        return cupy.asarray(angles(np.array(1), K, base, 1.0, llama3))
