"""Dropout, with the random bits of ``reference.random``."""

from functools import lru_cache

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.launch import for_each_element, real
from npformer.gpu.memory import lasting
from npformer.reference.math.dropout import kept_scale, threshold
from npformer.reference.math.random import key_words


@kernel_of(reference.dropout)
def dropout(x, dropout_rate, dropout_key):
    return _drop(x, dropout_rate, dropout_key)


@kernel_of(reference.dropout_backward)
def dropout_backward(dy, dropout_rate, dropout_key):
    return _drop(dy, dropout_rate, dropout_key)


def _drop(x, dropout_rate, dropout_key):
    if dropout_rate == 0:
        return x
    y = cupy.empty(x.shape, x.dtype)
    options = x.size, 1, *drawing(dropout_rate, dropout_key, x.dtype)
    for_each_element("fused", "add_bias_drop_residual", x.dtype, x.size, x, None, None, y, *options)
    return y


def drawing(dropout_rate, dropout_key, dtype):
    """What a kernel needs for dropout: the words of the key on the GPU, the threshold, the factor
    of kept elements.
    """
    if dropout_rate == 0:
        return None, np.uint32(0), real(dtype).type(1)
    words = dropout_key.words() if hasattr(dropout_key, "words") else words_on_gpu(dropout_key)
    return words, np.uint32(threshold(dropout_rate)), real(dtype).type(kept_scale(dropout_rate))


@lru_cache(maxsize=1024)  # forward and backward pass use the same keys
def words_on_gpu(key):
    """The two words of a key, on the GPU."""
    with lasting():
        return cupy.asarray(np.array(key_words(key), np.uint32))
