"""The kernels for decoding one token at a time that training does not need."""

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.backend import kernel_of, ops
from npformer.gpu.kernels.flash_attention import KNOWN
from npformer.gpu.launch import for_each_row, launch, real
from npformer.reference.math.attention import scale_of


# the rows of q may be parts of longer rows
@kernel_of(reference.cached_attention, as_it_lies="q", without="bias", knows=KNOWN)
def cached_attention(q, kv, at, settings, keep_mask, bias):
    (B, D), S, n_heads = q.shape, at.shape[1], settings.n_heads
    if D > 1 and q.strides[1] != q.itemsize:
        q = cupy.ascontiguousarray(q)
    out, weights = cupy.empty((B, D), q.dtype), cupy.empty((B, n_heads, S), real(q.dtype))
    K = D // n_heads
    arrays = q, q.strides[0] // q.itemsize, kv, at, keep_mask, weights, out
    numbers = S, K, kv.shape[1] // 2, real(q.dtype).type(scale_of(K, settings.scale))
    grid = B, n_heads
    launch("decoding", "cached_attention", q.dtype, grid, (128,), *arrays, *numbers)
    return out


# rounding to half precision would make ties
@kernel_of(reference.log_softmax_top_k, dtypes="float32 float64")
def log_softmax_top_k(x, k):
    y, shape = ops.log_softmax(x), (len(x), min(k, x.shape[1]))
    values, ids = cupy.empty(shape, x.dtype), cupy.empty(shape, np.int64)
    for_each_row("decoding", "largest", x.dtype, len(x), x, y, values, ids, x.shape[1], shape[1])
    return values, ids
