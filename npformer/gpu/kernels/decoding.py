"""Decoding one token at a time: ``reference.cached_attention`` and ``log_softmax_top_k``.

Keys and values are read where they lie in the cache, while the reference gathers them first.
"""

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.backend import kernel_of, ops
from npformer.gpu.kernels.flash_attention import KNOWN
from npformer.gpu.launch import cuda_kernel, real, row_kernel
from npformer.reference.math.attention import scale_of


# The rows of q may be parts of longer rows. The kernel adds no bias.
@kernel_of(reference.cached_attention, as_it_lies="q", without="bias", knows=KNOWN)
def cached_attention(q, kv, at, settings, keep_mask, bias):
    B, D = q.shape
    S = at.shape[1]
    H = settings.n_heads
    K = D // H
    kv_width = kv.shape[1] // 2
    wide = real(q.dtype)
    if D > 1 and q.strides[1] != q.itemsize:
        q = cupy.ascontiguousarray(q)
    q_row = q.strides[0] // q.itemsize
    scale = wide.type(scale_of(K, settings.scale))
    out = cupy.empty((B, D), q.dtype)
    weights = cupy.empty((B, H, S), wide)
    kernel = cuda_kernel("decoding", "cached_attention", q.dtype, (B, H), (128,))
    # cached_attention(q, q_row, kv, at, keep_mask, weights, out, S, K, kv_width, scale)
    kernel(q, q_row, kv, at, keep_mask, weights, out, S, K, kv_width, scale)
    return out


# Rounding to half precision would make ties.
@kernel_of(reference.log_softmax_top_k, dtypes="float32 float64")
def log_softmax_top_k(x, k):
    n_rows, n = x.shape
    n_best = min(k, n)
    y = ops.log_softmax(x)
    values = cupy.empty((n_rows, n_best), x.dtype)
    ids = cupy.empty((n_rows, n_best), np.int64)
    kernel = row_kernel("decoding", "largest", x.dtype, n_rows)
    # largest(x, y, values, ids, n, n_best)
    kernel(x, y, values, ids, n, n_best)
    return values, ids
