"""Attention on packed projections: heads are views, results and gradients are written where they belong."""

import numpy as np

from npformer import reference
from npformer.cpu.arrays import suit
from npformer.cpu.flash_attention import attend, attend_backward, options_for, suits
from npformer.cpu.memory import empty
from npformer.reference.checks import check_attention
from npformer.reference.packed_attention import split_parts


def self_attention(qkv, n_heads, keep_mask=None, *, causal=False, dropout_rate=0.0, key=None):
    """As ``reference.self_attention``."""
    options = {"causal": causal, "dropout_rate": dropout_rate, "key": key}
    q, k, v = _split(qkv, n_heads, 3, "qkv")
    result = _attend(q, k, v, keep_mask, options)
    return result or reference.self_attention(qkv, n_heads, keep_mask, **options)


def self_attention_backward(
    dout, qkv, out, logsumexp, n_heads, keep_mask=None, *, causal=False, dropout_rate=0.0, key=None
):
    """As ``reference.self_attention_backward``."""
    options = {"causal": causal, "dropout_rate": dropout_rate, "key": key}
    q, k, v = _split(qkv, n_heads, 3, "qkv")
    dqkv = empty(qkv.shape, qkv.dtype)
    gradients = split_parts(dqkv, n_heads, 3, "dqkv")
    if _attend_backward(dout, q, k, v, out, logsumexp, keep_mask, options, gradients):
        return dqkv
    return reference.self_attention_backward(dout, qkv, out, logsumexp, n_heads, keep_mask, **options)


def cross_attention(q, kv, n_heads, keep_mask=None, *, causal=False, dropout_rate=0.0, key=None):
    """As ``reference.cross_attention``."""
    options = {"causal": causal, "dropout_rate": dropout_rate, "key": key}
    (queries,), (k, v) = _split(q, n_heads, 1, "q"), _split(kv, n_heads, 2, "kv")
    result = _attend(queries, k, v, keep_mask, options)
    return result or reference.cross_attention(q, kv, n_heads, keep_mask, **options)


def cross_attention_backward(
    dout, q, kv, out, logsumexp, n_heads, keep_mask=None, *, causal=False, dropout_rate=0.0, key=None
):
    """As ``reference.cross_attention_backward``."""
    options = {"causal": causal, "dropout_rate": dropout_rate, "key": key}
    (queries,), (k, v) = _split(q, n_heads, 1, "q"), _split(kv, n_heads, 2, "kv")
    dq, dkv = empty(q.shape, q.dtype), empty(kv.shape, kv.dtype)
    gradients = (*split_parts(dq, n_heads, 1, "dq"), *split_parts(dkv, n_heads, 2, "dkv"))
    if _attend_backward(dout, queries, k, v, out, logsumexp, keep_mask, options, gradients):
        return dq, dkv
    return reference.cross_attention_backward(dout, q, kv, out, logsumexp, n_heads, keep_mask, **options)


def _split(x, n_heads, n_parts, name):
    """``split_parts`` of rows that BLAS can read."""
    return split_parts(np.ascontiguousarray(x) if type(x) is np.ndarray else x, n_heads, n_parts, name)


def _attend(q, k, v, keep_mask, options):
    """(out (B, T, D), logsumexp), or None if the reference has to do it."""
    if not suits(q, k, v):
        return None
    check_attention(q, k, v, keep_mask, options["dropout_rate"], options["key"])
    result = attend(q, k, v, options_for(q, k, keep_mask, scale=None, **options))
    if result is None:
        return None
    out, logsumexp = result
    return out.reshape(*out.shape[:2], -1), logsumexp


def _attend_backward(dout, q, k, v, out, logsumexp, keep_mask, options, gradients):
    """Whether the gradients have been written; if not, the reference has to do it."""
    B, H, T, K = q.shape
    if not (suits(q, k, v) and suit(q, dout, out, logsumexp)) or not dout.shape == out.shape == (B, T, H * K):
        return False
    if logsumexp.shape != (B, H, T):
        return False
    check_attention(q, k, v, keep_mask, options["dropout_rate"], options["key"])
    kernel_options = options_for(q, k, keep_mask, scale=None, **options)
    dout, out = (np.ascontiguousarray(x).reshape(B, T, H, K) for x in (dout, out))
    return attend_backward(dout, out, q, k, v, np.ascontiguousarray(logsumexp), kernel_options, gradients)
