"""Rotary positions: ``reference.rotary`` and its backward pass, in one pass over the array.

Cosines and sines are computed once for each position that is given, and kept for the next layers;
the reference computes them for each call, and rotates with arrays in between.
"""

from functools import lru_cache

import numpy as np

from npformer.arrays import as_rows
from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.rows import copy_row
from npformer.kernels.shared import make_rotary_kernels
from npformer.reference.math.rotary import angles
from npformer.runtime.memory import empty


def _turned(x, positions, n_heads, n_plain, base, scaling, pairs, llama3):
    """The rows of x, turned by the angles of their positions."""
    K = x.shape[-1] // (n_heads + n_plain)
    cos, sin = turns(positions.tobytes(), positions.dtype, K, base, scaling, llama3, x.dtype)
    row_of_position = np.arange(positions.size).reshape(positions.shape)
    rows = np.broadcast_to(row_of_position, x.shape[:-1]).flatten()
    y = empty(x.shape, x.dtype)
    _turn(as_rows(x), rows, cos, sin, n_heads, pairs == "halves", as_rows(y))
    return y


make_rotary_kernels(kernel_of, _turned)


@lru_cache(maxsize=4)  # the positions of all layers are the same
def turns(positions, dtype_of_positions, K, base, scaling, llama3, dtype):
    """The cosines and sines of positions, which are the bytes of an array: (2, n, K/2)."""
    turned = angles(np.frombuffer(positions, dtype_of_positions), K, base, scaling, llama3)
    return np.stack([np.cos(turned), np.sin(turned)]).astype(dtype)


@kernel
def _turn(x, rows, cos, sin, n_heads, is_halves, y):
    """Turn the rows of x; row i has the angles of row ``rows[i]``."""
    n = n_heads * 2 * cos.shape[1]
    for i in range(len(x)):
        turn_row(x[i], cos[rows[i]], sin[rows[i]], n, is_halves, y[i])
        copy_row(x[i, n:], y[i, n:])


@inlined
def turn_row(x, cos, sin, n, is_halves, y):
    """Turn the first n entries of one row, head by head. y may be x itself."""
    M = len(cos)
    for first in range(0, n, 2 * M):
        for j in range(M):
            k = np.uint64(first + j if is_halves else first + 2 * j)
            m = np.uint64(k + M if is_halves else k + 1)
            a = x[k]
            b = x[m]
            turned_a = a * cos[j] - b * sin[j]
            turned_b = a * sin[j] + b * cos[j]
            y[k] = turned_a
            y[m] = turned_b
