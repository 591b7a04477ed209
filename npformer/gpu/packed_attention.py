"""Attention between projections as they come out of one matrix product: the kernels read the heads where they lie."""

import cupy

from npformer import reference
from npformer.gpu.arrays import contiguous, suit
from npformer.gpu.flash_attention import as_heads, attend, attend_backward, fits, fits_saved, mask_of
from npformer.reference.checks import check_attention
from npformer.reference.packed_attention import split_parts


def self_attention(qkv, n_heads, keep_mask=None, *, causal=False, dropout_rate=0.0, key=None):
    """As ``reference.self_attention``."""
    options = {"causal": causal, "dropout_rate": dropout_rate, "key": key}
    if not suit(qkv):
        return reference.self_attention(qkv, n_heads, keep_mask, **options)
    result = _attend(*split_parts(qkv, n_heads, 3, "qkv"), keep_mask, options)
    return result or reference.self_attention(qkv, n_heads, keep_mask, **options)


def self_attention_backward(
    dout, qkv, out, logsumexp, n_heads, keep_mask=None, *, causal=False, dropout_rate=0.0, key=None
):
    """As ``reference.self_attention_backward``."""
    options = {"causal": causal, "dropout_rate": dropout_rate, "key": key}
    if suit(qkv, dout, out):
        dqkv = cupy.empty(qkv.shape, qkv.dtype)
        heads, gradients = (split_parts(x, n_heads, 3, "qkv") for x in (qkv, dqkv))
        if _attend_backward(dout, out, logsumexp, *heads, gradients, keep_mask, options):
            return dqkv
    return reference.self_attention_backward(dout, qkv, out, logsumexp, n_heads, keep_mask, **options)


def cross_attention(q, kv, n_heads, keep_mask=None, *, causal=False, dropout_rate=0.0, key=None):
    """As ``reference.cross_attention``."""
    options = {"causal": causal, "dropout_rate": dropout_rate, "key": key}
    if not suit(q, kv):
        return reference.cross_attention(q, kv, n_heads, keep_mask, **options)
    heads = *split_parts(q, n_heads, 1, "q"), *split_parts(kv, n_heads, 2, "kv")
    return _attend(*heads, keep_mask, options) or reference.cross_attention(q, kv, n_heads, keep_mask, **options)


def cross_attention_backward(
    dout, q, kv, out, logsumexp, n_heads, keep_mask=None, *, causal=False, dropout_rate=0.0, key=None
):
    """As ``reference.cross_attention_backward``."""
    options = {"causal": causal, "dropout_rate": dropout_rate, "key": key}
    if suit(q, kv, dout, out):
        dq, dkv = cupy.empty(q.shape, q.dtype), cupy.empty(kv.shape, kv.dtype)
        heads, gradients = (
            [*split_parts(x, n_heads, 1, "q"), *split_parts(y, n_heads, 2, "kv")] for x, y in ((q, kv), (dq, dkv))
        )
        if _attend_backward(dout, out, logsumexp, *heads, gradients, keep_mask, options):
            return dq, dkv
    return reference.cross_attention_backward(dout, q, kv, out, logsumexp, n_heads, keep_mask, **options)


def _attend(q, k, v, keep_mask, options):
    """(out (B, T, D), logsumexp), or None if the kernels do not suit."""
    if not fits(q, k, v, keep_mask):
        return None
    check_attention(q, k, v, keep_mask, options["dropout_rate"], options["key"])
    B, H, T, K = q.shape
    out = cupy.empty((B, T, H * K), q.dtype)
    logsumexp = attend(*map(as_heads, (q, k, v)), _heads_of(out, H), mask_of(keep_mask, q, k), **options)
    return out, logsumexp


def _attend_backward(dout, out, logsumexp, q, k, v, gradients, keep_mask, options):
    """Write the gradients; False if the kernels do not suit."""
    B, H, T, K = q.shape
    if not (fits(q, k, v, keep_mask) and dout.shape == out.shape == (B, T, H * K)):
        return False
    dout, out = (_heads_of(x, H) for x in (dout, out))
    if not fits_saved(dout, out, logsumexp, q, v):
        return False
    check_attention(q, k, v, keep_mask, options["dropout_rate"], options["key"])
    dout, out = as_heads(dout), as_heads(out)
    mask = mask_of(keep_mask, q, k)
    attend_backward(dout, out, contiguous(logsumexp), *map(as_heads, (q, k, v)), *gradients, mask, **options)
    return True


def _heads_of(x, n_heads):
    """(B, T, D) as a view (B, H, T, K)."""
    [heads] = split_parts(x, n_heads, 1, "out")
    return heads
