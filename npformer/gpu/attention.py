"""Attention that returns its weights: products by cuBLAS, and scale, masks and softmax in one pass over each row."""

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.arrays import contiguous, size_of, suit
from npformer.gpu.blas import multiply_each
from npformer.gpu.dropout import drawing, dropout
from npformer.gpu.flash_attention import mask_of
from npformer.gpu.launch import for_each_row, real
from npformer.gpu.product import product
from npformer.reference.attention import default_scale
from npformer.reference.checks import check_attention, check_shape


def attention(q, k, v, keep_mask=None, *, causal=False, scale=None, dropout_rate=0.0, key=None):
    """As ``reference.attention``."""
    if not _fits(q, k, v) or not isinstance(keep_mask, (cupy.ndarray, type(None))):
        options = {"causal": causal, "scale": scale, "dropout_rate": dropout_rate, "key": key}
        return reference.attention(q, k, v, keep_mask, **options)
    check_attention(q, k, v, keep_mask, dropout_rate, key)
    weights = multiply_each(_each(q), _each(k).swapaxes(1, 2))
    (_, T, S), mask = weights.shape, mask_of(keep_mask, q, k)
    heads, steps = (1, (0,) * 4) if mask is None else (mask.shape[1], mask.strides)
    options = *size_of(heads, T, S), _scale(q, scale), mask, *size_of(*steps), np.int32(causal)
    for_each_row("attention_weights", "weigh", q.dtype, len(weights) * T, weights, *options)
    out = product(dropout(weights, dropout_rate, key), _each(v))
    return out.reshape(*q.shape[:-1], v.shape[-1]), weights.reshape(*q.shape[:-1], S)


def attention_backward(dout, q, k, v, weights, *, scale=None, dropout_rate=0.0, key=None):
    """As ``reference.attention_backward``."""
    if not (_fits(q, k, v) and suit(q, dout, weights)):
        options = {"scale": scale, "dropout_rate": dropout_rate, "key": key}
        return reference.attention_backward(dout, q, k, v, weights, **options)
    check_attention(q, k, v, None, dropout_rate, key)
    check_shape(dout=(dout, (*q.shape[:-1], v.shape[-1])), weights=(weights, (*q.shape[:-1], k.shape[-2])))
    dout, weights = _each(dout), _each(weights)
    dscores = multiply_each(dout, _each(v).swapaxes(1, 2))
    n_rows, S = dscores.shape[0] * dscores.shape[1], dscores.shape[2]
    options = *size_of(S, v.shape[-1]), _scale(q, scale), *drawing(dropout_rate, key, q.dtype)
    for_each_row("attention_weights", "differentiate", q.dtype, n_rows, dout, weights, dscores, *options)
    dv = product(dropout(weights, dropout_rate, key).swapaxes(1, 2), dout)
    dq, dk = product(dscores, _each(k)), product(dscores.swapaxes(1, 2), _each(q))
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)


def _fits(q, k, v):
    """Whether there are kernels for these: in half precision scores would be rounded before the softmax."""
    return suit(q, k, v) and q.dtype.itemsize >= 4 and min(q.ndim, k.ndim, v.ndim) >= 2


def _each(x):
    """(..., n, m) as C-contiguous (N, n, m)."""
    return contiguous(x).reshape(-1, *x.shape[-2:])


def _scale(q, scale):
    return real(q.dtype).type(default_scale(q, scale))
