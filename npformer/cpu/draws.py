"""Which numbers dropout keeps: a hash of their positions, as in ``reference.dropout_keep``."""

from functools import lru_cache

import numba
import numpy as np

from npformer.cpu.jit import inlined, lowered
from npformer.reference.math.dropout import kept_scale, threshold
from npformer.reference.math.random import key_words

ROUNDS = (16, 0x7FEB352D), (15, 0x846CA68B)  # shifts and factors
LAST_SHIFT = 16
KEEP_ALL = np.uint32(0), np.uint32(0), np.uint32(0)


@lru_cache  # the backward pass asks again
def dropout_arguments(dropout_rate, dropout_key, dtype):
    """What a kernel needs for dropout: (draw for ``is_kept``, number by which kept elements are
    scaled).
    """
    if dropout_rate == 0:
        return KEEP_ALL, dtype.type(1)
    draw = (np.uint32(threshold(dropout_rate)), *key_words(dropout_key))
    return draw, dtype.type(kept_scale(dropout_rate))


def mix32(h):
    """``_mix32`` of ``reference.math.random``, a bijection of the 32-bit integers."""
    for shift, factor in ROUNDS:
        h = np.uint32((h ^ (h >> shift)) * factor)
    return np.uint32(h ^ (h >> LAST_SHIFT))


@lowered(mix32, lambda h: numba.uint32, numba.types.Integer)
def _compile_mix32(context, builder, signature, arguments):
    """In integers of 32 bits: numba's have 64, which takes 1.4 times as long."""
    h = context.cast(builder, arguments[0], signature.args[0], numba.uint32)
    for shift, factor in ROUNDS:
        h = builder.mul(builder.xor(h, builder.lshr(h, h.type(shift))), h.type(factor))
    return builder.xor(h, builder.lshr(h, h.type(LAST_SHIFT)))


@inlined
def is_kept(index, draw):
    """Whether dropout keeps an element; ``draw`` is (threshold, low key, high key)."""
    return is_kept_by_halves(np.uint32(index), mixed_high(index, draw), draw)


@inlined
def is_kept_by_halves(low, high, draw):
    """``is_kept`` of an index with this lower half; of its upper half, ``mixed_high``."""
    threshold, low_key, _ = draw
    return mix32(np.uint32(mix32(low ^ low_key) + high)) >= threshold


@inlined
def mixed_high(index, draw):
    """The upper half of an index, with that of the key."""
    _, _, high_key = draw
    return np.uint32(np.uint32(index >> 32) ^ high_key)
