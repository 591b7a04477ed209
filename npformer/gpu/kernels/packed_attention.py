"""Attention on packed projections: the kernels read and write the heads as views of them."""

import cupy

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.flash_attention import attend, attend_backward, mask_of
from npformer.reference.math.packed_attention import split_parts, split_q_kv


@kernel_of(reference.self_attention, without="bias")
def self_attention(qkv, settings, keep_mask, bias, dropout_key):
    return _attend(*split_parts(qkv, *settings.parts), settings, keep_mask, dropout_key)


@kernel_of(reference.self_attention_backward, without="bias")
def self_attention_backward(dout, qkv, out, logsumexp, settings, keep_mask, bias, dropout_key):
    dqkv = cupy.empty(qkv.shape, qkv.dtype)
    heads = *split_parts(qkv, *settings.parts), *split_parts(dqkv, *settings.parts)
    done = _attend_backward(logsumexp, dout, out, *heads, settings, keep_mask, dropout_key)
    return done if done is NotImplemented else dqkv


@kernel_of(reference.cross_attention, without="bias")
def cross_attention(q, kv, settings, keep_mask, bias, dropout_key):
    return _attend(*split_q_kv(q, kv, settings), settings, keep_mask, dropout_key)


@kernel_of(reference.cross_attention_backward, without="bias")
def cross_attention_backward(dout, q, kv, out, logsumexp, settings, keep_mask, bias, dropout_key):
    dq, dkv = cupy.empty(q.shape, q.dtype), cupy.empty(kv.shape, kv.dtype)
    heads = *split_q_kv(q, kv, settings), *split_q_kv(dq, dkv, settings)
    done = _attend_backward(logsumexp, dout, out, *heads, settings, keep_mask, dropout_key)
    return done if done is NotImplemented else (dq, dkv)


def _attend(q, k, v, settings, keep_mask, dropout_key):
    """(out (B, T, D), logsumexp), or NotImplemented."""
    B, H, T, K = q.shape
    out = cupy.empty((B, T, H * K), q.dtype)
    logsumexp = attend(q, k, v, *split_parts(out, H), *_options(q, k, settings, keep_mask, dropout_key))
    return logsumexp if logsumexp is NotImplemented else (out, logsumexp)


def _attend_backward(logsumexp, dout, out, q, k, v, dq, dk, dv, settings, keep_mask, dropout_key):
    n, options = settings.n_heads, _options(q, k, settings, keep_mask, dropout_key)
    return attend_backward(logsumexp, *split_parts(dout, n), *split_parts(out, n), q, k, v, dq, dk, dv, *options)


def _options(q, k, settings, keep_mask, dropout_key):
    return mask_of(keep_mask, q, k), settings.causal, settings.scale, settings.dropout_rate, dropout_key
