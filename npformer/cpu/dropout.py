"""Dropout in one pass."""

import numpy as np

from npformer import reference
from npformer.cpu.arrays import suit
from npformer.cpu.jit import kernel
from npformer.cpu.memory import empty
from npformer.cpu.scalar import is_kept, like
from npformer.reference.checks import check_rate
from npformer.reference.dropout import kept_scale, threshold
from npformer.reference.random import key_words

KEEP_ALL = np.uint32(0), np.uint32(0), np.uint32(0)


def dropout(x, rate, key):
    """As ``reference.dropout``."""
    if rate == 0 or not suit(x):
        return reference.dropout(x, rate, key)
    check_rate(rate, key)
    y = empty(x.shape, x.dtype)
    _dropout(np.ascontiguousarray(x).reshape(-1), y.reshape(-1), *drawing(rate, key, x.dtype))
    return y


def dropout_backward(dy, rate, key):
    """As ``reference.dropout_backward``."""
    return dropout(dy, rate, key) if suit(dy) else reference.dropout_backward(dy, rate, key)


def drawing(rate, key, dtype):
    """What a kernel needs to drop: ``draw`` for ``is_kept``, and the factor of what is kept."""
    if rate == 0:
        return KEEP_ALL, dtype.type(1)
    return (np.uint32(threshold(rate)), *key_words(key)), dtype.type(kept_scale(rate))


@kernel
def _dropout(x, y, draw, factor):
    for i in range(x.size):
        y[i] = x[i] * factor if is_kept(i, draw) else like(factor, 0)
