"""What decoding a token at a time needs besides the kernels of training."""

from types import SimpleNamespace

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.arrays import contiguous, size_of, suit
from npformer.gpu.fused import linear_activation_dropout, linear_dropout_residual
from npformer.gpu.launch import for_each_row, launch, real
from npformer.gpu.layer_norm import layer_norm
from npformer.gpu.linear import linear
from npformer.gpu.softmax import log_softmax
from npformer.reference.checks import check_int
from npformer.reference.decoding import check_cached, layer_step

MOST_KEYS = 2048  # as in decoding.cu


def decoder_layer_step(
    x0, params, kv, at, memory_kv, memory_at, memory_mask=None, *, n_heads, norm="pre", activation="relu"
):
    """As ``reference.decoder_layer_step``."""
    return layer_step(
        _OWN, x0, params, kv, at, memory_kv, memory_at, memory_mask, n_heads=n_heads, norm=norm, activation=activation
    )


def cached_attention(q, kv, at, n_heads, keep_mask=None):
    """As ``reference.cached_attention``."""
    are_ids = isinstance(at, cupy.ndarray) and at.dtype.kind in "iu"
    if not (suit(q, kv) and are_ids and isinstance(keep_mask, (cupy.ndarray, type(None)))):
        return reference.cached_attention(q, kv, at, n_heads, keep_mask)
    check_cached(q, kv, at, n_heads, keep_mask)
    return _attend(q, kv, at, n_heads, keep_mask)


def _attend(q, kv, at, n_heads, keep_mask=None):
    """The same without looking at ``at``, which has the host wait."""
    if not 0 < at.shape[1] <= MOST_KEYS:
        return reference.cached_attention(q, kv, at, n_heads, keep_mask)
    (B, D), S, K = q.shape, at.shape[1], q.shape[1] // n_heads
    out, mask = cupy.empty((B, D), q.dtype), None if keep_mask is None else contiguous(keep_mask)
    arrays = contiguous(q), contiguous(kv), contiguous(at.astype(np.int64, copy=False)), mask, out
    scale = real(q.dtype).type(K**-0.5)
    launch("decoding", "cached_attention", q.dtype, (B, n_heads), (128,), *arrays, *size_of(S, K), scale)
    return out


_OWN = SimpleNamespace(
    linear=linear,
    linear_activation_dropout=linear_activation_dropout,
    linear_dropout_residual=linear_dropout_residual,
    layer_norm=layer_norm,
    cached_attention=_attend,
)


def log_softmax_top_k(x, k):
    """As ``reference.log_softmax_top_k``."""
    if not suit(x) or x.ndim != 2:
        return reference.log_softmax_top_k(x, k)
    check_int("k", k, at_least=1)
    y, shape = log_softmax(x), (len(x), min(k, x.shape[1]))
    values, ids = cupy.empty(shape, x.dtype), cupy.empty(shape, np.int64)
    for_each_row("decoding", "largest", x.dtype, len(x), y, values, ids, *size_of(x.shape[1], shape[1]))
    return values, ids
