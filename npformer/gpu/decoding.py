"""What decoding a token at a time needs besides the kernels of training."""

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.launch import for_each_row, launch, real
from npformer.gpu.room import kernel_of
from npformer.gpu.softmax import log_softmax
from npformer.reference.decoding import layer_step


@kernel_of(reference.decoder_layer_step)
def decoder_layer_step(x0, params, kv, at, memory_kv, memory_at, memory_mask, n_heads, norm, activation):
    from npformer import gpu as ops  # which imports this file

    caches = kv, at, memory_kv, memory_at, memory_mask
    return layer_step(ops, _attend, x0, params, *caches, n_heads, norm, activation)


@kernel_of(reference.cached_attention)
def cached_attention(q, kv, at, n_heads, keep_mask):
    return _attend(q, kv, at, n_heads, keep_mask)


def _attend(q, kv, at, n_heads, keep_mask=None):
    """The same without the door, which looks at ``at`` and has the host wait."""
    (B, D), S = q.shape, at.shape[1]
    q = q.astype(kv.dtype, copy=False)  # the doors know of parameters, which the contract does not
    out, weights = cupy.empty((B, D), q.dtype), cupy.empty((B, n_heads, S), real(q.dtype))
    arrays, K = (q, q.strides[0] // q.itemsize, kv, at, keep_mask, weights, out), D // n_heads
    scale = real(q.dtype).type(K**-0.5)
    launch("decoding", "cached_attention", q.dtype, (B, n_heads), (128,), *arrays, S, K, scale)
    return out


@kernel_of(reference.log_softmax_top_k, dtypes="float32 float64")  # half precision would make more of them equal
def log_softmax_top_k(x, k):
    y, shape = log_softmax(x), (len(x), min(k, x.shape[1]))
    values, ids = cupy.empty(shape, x.dtype), cupy.empty(shape, np.int64)
    for_each_row("decoding", "largest", x.dtype, len(x), x, y, values, ids, x.shape[1], shape[1])
    return values, ids
