"""Rotary positions in one pass."""

from functools import lru_cache

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.launch import for_each_element
from npformer.gpu.memory import lasting
from npformer.reference.math.rotary import angles


@kernel_of(reference.rotary)
def rotary(x, positions, n_heads, n_plain, base, scaling, pairs, llama3):
    K, y = x.shape[-1] // (n_heads + n_plain), cupy.empty(x.shape, x.dtype)
    n, at = (
        x.size // x.shape[-1] * K // 2,
        cupy.ascontiguousarray(cupy.broadcast_to(positions, x.shape[:-1])),
    )
    numbers = n, K, n_heads, n_plain, np.float64(scaling), pairs == "halves"
    for_each_element(
        "rotary", "rotary", x.dtype, n, x, at, _frequencies(K, base, llama3), y, *numbers
    )
    return y


@kernel_of(reference.rotary_backward)
def rotary_backward(dy, positions, n_heads, n_plain, base, scaling, pairs, llama3):
    return rotary.kernel.function(dy, positions, n_heads, n_plain, base, -scaling, pairs, llama3)


@lru_cache(maxsize=64)
def _frequencies(K, base, llama3):
    """The angles of position 1, with the bits of the reference: other positions multiply a
    difference.
    """
    with lasting():
        return cupy.asarray(angles(np.array(1), K, base, 1.0, llama3))
