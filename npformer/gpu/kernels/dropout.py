"""Dropout: ``reference.dropout`` and its backward pass, and what other kernels with dropout need.

A thread makes the random bits of an element, those of ``reference.random``; no array has them.
"""

from functools import lru_cache
from typing import NamedTuple

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.launch import element_kernel, real
from npformer.gpu.memory import lasting
from npformer.reference.math.dropout import kept_scale, threshold
from npformer.reference.math.random import key_words


@kernel_of(reference.dropout)
def dropout(x, dropout_rate, dropout_key):
    if dropout_rate == 0:
        return x
    y = cupy.empty(x.shape, x.dtype)
    add_bias_drop_residual(x, None, None, y, dropout_rate, dropout_key)
    return y


@kernel_of(reference.dropout_backward)
def dropout_backward(dy, dropout_rate, dropout_key):
    return dropout(dy, dropout_rate, dropout_key)


def add_bias_drop_residual(h, bias, residual, y, dropout_rate, dropout_key):
    """y = residual + dropout(h + bias), without what is None; y may be h."""
    n_columns = 1 if bias is None else bias.size
    drop = dropout_arguments(dropout_rate, dropout_key, h.dtype)
    kernel = element_kernel("fused", "add_bias_drop_residual", h.dtype, h.size)
    # add_bias_drop_residual(h, bias, residual, y, size, n_columns, key, threshold, kept_scale)
    kernel(h, bias, residual, y, h.size, n_columns, *drop)


class DropoutArguments(NamedTuple):
    """The last arguments of each kernel with dropout."""

    key: cupy.ndarray | None  # its two words
    threshold: np.uint32  # 0 if nothing is dropped
    kept_scale: np.floating  # of kept elements


def dropout_arguments(dropout_rate, dropout_key, dtype):
    """The arguments for a rate and a key, which may be None if the rate is 0."""
    number = real(dtype).type
    if dropout_rate == 0:
        return DropoutArguments(None, np.uint32(0), number(1))
    if hasattr(dropout_key, "words"):  # in a recording
        words = dropout_key.words()
    else:
        words = _words_on_gpu(dropout_key)
    scale = number(kept_scale(dropout_rate))
    return DropoutArguments(words, np.uint32(threshold(dropout_rate)), scale)


@lru_cache(maxsize=1024)  # forward and backward pass use the same keys
def _words_on_gpu(key):
    """The two words of a key, on the GPU."""
    with lasting():
        return cupy.asarray(np.array(key_words(key), np.uint32))
