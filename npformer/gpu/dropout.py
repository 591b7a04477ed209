"""Dropout, with the bits of ``reference.random``."""

from functools import lru_cache

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.arrays import contiguous, size_of, suit
from npformer.gpu.launch import for_each_element, real
from npformer.reference.checks import check_rate
from npformer.reference.dropout import kept_scale, threshold
from npformer.reference.random import key_words


def dropout(x, rate, key):
    """As ``reference.dropout``."""
    check_rate(rate, key)
    if rate == 0 or not suit(x):
        return reference.dropout(x, rate, key)
    x, y = contiguous(x), cupy.empty(x.shape, x.dtype)
    for_each_element("fused", "dropout", x.dtype, x.size, x, y, *size_of(x.size), *drawing(rate, key, x.dtype))
    return y


def dropout_backward(dy, rate, key):
    """As ``reference.dropout_backward``."""
    return dropout(dy, rate, key)


def drawing(rate, key, dtype):
    """What a kernel needs to drop: the key's two words on the GPU, the threshold, the factor of what is kept."""
    if rate == 0:
        return None, np.uint32(0), real(dtype).type(1)
    words = key.words() if hasattr(key, "words") else words_on_gpu(key)
    return words, np.uint32(threshold(rate)), real(dtype).type(kept_scale(rate))


@lru_cache(maxsize=1024)  # forward and backward pass use the same
def words_on_gpu(key):
    """The two words of a key, on the GPU."""
    return cupy.asarray(np.array(key_words(key), np.uint32))
