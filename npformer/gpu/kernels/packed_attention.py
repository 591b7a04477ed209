"""Attention on packed projections: the kernels read and write the heads as views of them."""

import cupy

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.flash_attention import attend, attend_backward, mask_of
from npformer.reference.math.packed_attention import split_parts


@kernel_of(reference.self_attention)
def self_attention(qkv, n_heads, keep_mask, causal, dropout_rate, dropout_key):
    return _attend(*split_parts(qkv, n_heads, 3), keep_mask, causal, dropout_rate, dropout_key)


@kernel_of(reference.self_attention_backward)
def self_attention_backward(dout, qkv, out, logsumexp, n_heads, keep_mask, causal, dropout_rate, dropout_key):
    dqkv, (dout, out) = cupy.empty(qkv.shape, qkv.dtype), _heads_of(n_heads, dout, out)
    heads = *split_parts(qkv, n_heads, 3), *split_parts(dqkv, n_heads, 3)
    done = _attend_backward(logsumexp, dout, out, *heads, keep_mask, causal, dropout_rate, dropout_key)
    return done if done is NotImplemented else dqkv


@kernel_of(reference.cross_attention)
def cross_attention(q, kv, n_heads, keep_mask, causal, dropout_rate, dropout_key):
    heads = *_heads_of(n_heads, q), *split_parts(kv, n_heads, 2)
    return _attend(*heads, keep_mask, causal, dropout_rate, dropout_key)


@kernel_of(reference.cross_attention_backward)
def cross_attention_backward(dout, q, kv, out, logsumexp, n_heads, keep_mask, causal, dropout_rate, dropout_key):
    dq, dkv = cupy.empty(q.shape, q.dtype), cupy.empty(kv.shape, kv.dtype)
    dout, out, *q_and_dq = _heads_of(n_heads, dout, out, q, dq)
    kv_heads, dkv_heads = split_parts(kv, n_heads, 2), split_parts(dkv, n_heads, 2)
    heads = q_and_dq[0], *kv_heads, q_and_dq[1], *dkv_heads
    done = _attend_backward(logsumexp, dout, out, *heads, keep_mask, causal, dropout_rate, dropout_key)
    return done if done is NotImplemented else (dq, dkv)


def _attend(q, k, v, keep_mask, causal, dropout_rate, dropout_key):
    """(out (B, T, D), logsumexp), or NotImplemented."""
    B, H, T, K = q.shape
    out, options = cupy.empty((B, T, H * K), q.dtype), (causal, None, dropout_rate, dropout_key)
    logsumexp = attend(q, k, v, *_heads_of(H, out), mask_of(keep_mask, q, k), *options)
    return logsumexp if logsumexp is NotImplemented else (out, logsumexp)


def _attend_backward(logsumexp, dout, out, q, k, v, dq, dk, dv, keep_mask, causal, dropout_rate, dropout_key):
    options = mask_of(keep_mask, q, k), causal, None, dropout_rate, dropout_key
    return attend_backward(logsumexp, dout, out, q, k, v, dq, dk, dv, *options)


def _heads_of(n_heads, *arrays):
    """(B, T, D) as views (B, H, T, K)."""
    return [split_parts(x, n_heads, 1)[0] for x in arrays]
