"""Rotary positions: pairs of entries of queries and keys are turned by their position (Su et al. 2021, RoFormer)."""

from typing import Literal

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation


@operation("x: ... T (H+G)*2*M, positions: ~ ... T ids, n_heads = H, n_plain = G -> y: ... T (H+G)*2*M")
def rotary(
    x: Array,
    positions: Array,
    n_heads: int = 1,
    n_plain: int = 0,
    *,
    base: float = 10000.0,
    scaling: float = 1.0,
    pairs: Literal["halves", "interleaved"] = "halves",
) -> Array:
    """Turn pair i of each head by the angle position / scaling · base^(-2i/K).

    A pair (a, b) becomes (a cos - b sin, a sin + b cos). The dot product of a query and a key then depends on their
    positions by the distance only.

    Parameters
    ----------
    x
        H heads that are turned, then G heads that are copied, as the values of a packed projection. K is even.
    n_heads, n_plain
        H and G.
    base
        The angles of the K/2 pairs fall from 1 at i = 0 towards 1/base.
    scaling
        Divides the positions, so that a model reads longer texts than those of its training.
    pairs
        Pair i has the entries i and i + K/2, as in Llama and GPT-NeoX, or 2i and 2i+1, as in the paper and GPT-J.

    >>> rotary(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1])).round(4)  # cos 1 and sin 1
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    return _turned(x, angles(positions, x.shape[-1] // (n_heads + n_plain), base, scaling), n_heads, pairs)


@backward_of(rotary)
def rotary_backward(
    dy: Array,
    positions: Array,
    n_heads: int = 1,
    n_plain: int = 0,
    *,
    base: float = 10000.0,
    scaling: float = 1.0,
    pairs: Literal["halves", "interleaved"] = "halves",
) -> Array:
    """dx: a rotation is linear, and its transpose turns by the opposite angle.

    >>> rotary_backward(rotary(np.array([[1.0, 2.0]]), np.array([7])), np.array([7])).round(6)
    array([[1., 2.]])
    """
    return _turned(dy, -angles(positions, dy.shape[-1] // (n_heads + n_plain), base, scaling), n_heads, pairs)


def angles(positions: Array, K: int, base: float, scaling: float) -> Array:
    """The angles of the K/2 pairs of a head at each position: (..., K/2) float64."""
    return positions[..., None] / scaling * base ** (-2 * np.arange(K // 2, like=positions) / K)


def _turned(x, angles, n_heads, pairs):
    K, is_halves = 2 * angles.shape[-1], pairs == "halves"
    cos, sin = (f(angles)[..., None, :].astype(x.real.dtype) for f in (np.cos, np.sin))
    heads = x[..., : n_heads * K].reshape(*x.shape[:-1], n_heads, K)
    a, b = (heads[..., : K // 2], heads[..., K // 2 :]) if is_halves else (heads[..., 0::2], heads[..., 1::2])
    turned = a * cos - b * sin, a * sin + b * cos
    heads = np.concatenate(turned, axis=-1) if is_halves else np.stack(turned, axis=-1)
    return np.concatenate([heads.reshape(*x.shape[:-1], n_heads * K), x[..., n_heads * K :]], axis=-1)
