"""Rotary positions in one pass; cosines and sines are computed once for each position that is given."""

import numpy as np

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import kernel
from npformer.reference.math.rotary import angles
from npformer.runtime.memory import empty


@kernel_of(reference.rotary)
def rotary(x, positions, n_heads, n_plain, base, scaling, pairs):
    turns = angles(positions, x.shape[-1] // (n_heads + n_plain), base, scaling)
    cos, sin = (as_rows(f(turns).astype(x.dtype)) for f in (np.cos, np.sin))
    rows = np.broadcast_to(np.arange(positions.size).reshape(positions.shape), x.shape[:-1]).flatten()
    y = empty(x.shape, x.dtype)
    _turn(as_rows(x), rows, cos, sin, n_heads, pairs == "halves", as_rows(y))
    return y


@kernel_of(reference.rotary_backward)
def rotary_backward(dy, positions, n_heads, n_plain, base, scaling, pairs):
    return rotary.kernel.function(dy, positions, n_heads, n_plain, base, -scaling, pairs)


@kernel
def _turn(x, rows, cos, sin, n_heads, is_halves, y):
    """Turn the rows of x; row i has the angles of row ``rows[i]``."""
    M = cos.shape[1]
    for i in range(len(x)):
        c, s = cos[rows[i]], sin[rows[i]]
        for first in range(0, n_heads * 2 * M, 2 * M):
            for j in range(M):
                k = np.uint64(first + j if is_halves else first + 2 * j)
                m = np.uint64(k + M if is_halves else k + 1)
                a, b = x[i, k], x[i, m]
                y[i, k], y[i, m] = a * c[j] - b * s[j], a * s[j] + b * c[j]
        y[i, n_heads * 2 * M :] = x[i, n_heads * 2 * M :]
