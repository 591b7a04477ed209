"""Rotary positions: pairs of entries of queries and keys are turned by their position.

It is RoFormer's (Su et al. 2021). The last axis has H heads that are turned, and G that are not,
side by side, each of M pairs. Positions are integers, one for each row, or for each row of a batch.
"""

from typing import Literal

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation
from npformer.operations.settings import Llama3Scaling


@operation(
    "x: ... T (H+G)*2*M, positions: ~ ... T ids, n_heads = H, n_plain = G -> y: ... T (H+G)*2*M"
)
def rotary(
    x: Array,
    positions: Array,
    n_heads: int = 1,
    n_plain: int = 0,
    *,
    base: float = 10000.0,
    scaling: float = 1.0,
    pairs: Literal["halves", "interleaved"] = "halves",
    llama3: Llama3Scaling | None = None,
) -> Array:
    """Turn pair i of each head by the angle position / scaling · base^(-2i/K).

    A pair (a, b) becomes (a cos - b sin, a sin + b cos). The dot product of a query and a key then
    depends on their positions by the distance only.

    Parameters
    ----------
    x
        H heads that are turned, then G heads that are copied, as the values of a packed projection.
        K is even.
    n_heads, n_plain
        H and G.
    base
        The angles of the K/2 pairs fall from 1 at i = 0 towards 1/base.
    scaling
        Divides the positions, so that a model reads longer texts than those of its training.
    pairs
        Pair i has the entries i and i + K/2, as in Llama and GPT-NeoX, or 2i and 2i+1, as in the
        paper and GPT-J.
    llama3
        Slows the pairs that turn slowly, as ``layers.Llama3Scaling`` says.

    >>> rotary(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1])).round(4)  # cos 1 and sin 1
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    K = x.shape[-1] // (n_heads + n_plain)
    angle = angles(positions, K, base, scaling, llama3)
    return _turned(x, angle, n_heads, pairs)


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
    llama3: Llama3Scaling | None = None,
) -> Array:
    """dx: a rotation is linear, and its transpose turns by the opposite angle.

    >>> rotary_backward(rotary(np.array([[1.0, 2.0]]), np.array([7])), np.array([7])).round(6)
    array([[1., 2.]])
    """
    K = dy.shape[-1] // (n_heads + n_plain)
    angle = angles(positions, K, base, scaling, llama3)
    return _turned(dy, -angle, n_heads, pairs)


def angles(positions, K, base, scaling, llama3):
    """The angles of the K/2 pairs of a head at each position: (..., K/2) float64."""
    pair = np.arange(K // 2, like=positions)
    frequency = base ** (-2 * pair / K)
    if llama3 is not None:
        frequency = llama3.frequencies(frequency)
    return positions[..., None] / scaling * frequency


def _turned(x, angle, n_heads, pairs):
    """Turn the pairs of the first heads of x; the heads after them stay as they are."""
    M = angle.shape[-1]  # pairs of a head
    K = 2 * M
    dtype = x.real.dtype
    cos = np.cos(angle)[..., None, :].astype(dtype)
    sin = np.sin(angle)[..., None, :].astype(dtype)

    width = n_heads * K
    heads = x[..., :width].reshape(*x.shape[:-1], n_heads, K)
    plain = x[..., width:]
    if pairs == "halves":
        a = heads[..., :M]
        b = heads[..., M:]
    else:
        a = heads[..., 0::2]
        b = heads[..., 1::2]
    turned_a = a * cos - b * sin
    turned_b = a * sin + b * cos
    if pairs == "halves":
        turned = np.concatenate([turned_a, turned_b], axis=-1)
    else:
        turned = np.stack([turned_a, turned_b], axis=-1)
    return np.concatenate([turned.reshape(*x.shape[:-1], width), plain], axis=-1)
