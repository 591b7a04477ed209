"""Attention on packed projections: heads are views, and results and gradients are written in packed form."""

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.kernels.flash_attention import attend, attend_backward, options_for
from npformer.cpu.memory import empty
from npformer.reference.math.packed_attention import split_parts


@kernel_of(reference.self_attention)
def self_attention(qkv, n_heads, keep_mask, causal, dropout_rate, dropout_key):
    return _attend(*split_parts(qkv, n_heads, 3), keep_mask, causal, dropout_rate, dropout_key)


@kernel_of(reference.self_attention_backward)
def self_attention_backward(dout, qkv, out, logsumexp, n_heads, keep_mask, causal, dropout_rate, dropout_key):
    dqkv = empty(qkv.shape, qkv.dtype)
    parts, gradients = split_parts(qkv, n_heads, 3), split_parts(dqkv, n_heads, 3)
    options = keep_mask, causal, dropout_rate, dropout_key
    return _attend_backward(dout, out, *parts, logsumexp, options, gradients, dqkv)


@kernel_of(reference.cross_attention)
def cross_attention(q, kv, n_heads, keep_mask, causal, dropout_rate, dropout_key):
    parts = *split_parts(q, n_heads, 1), *split_parts(kv, n_heads, 2)
    return _attend(*parts, keep_mask, causal, dropout_rate, dropout_key)


@kernel_of(reference.cross_attention_backward)
def cross_attention_backward(dout, q, kv, out, logsumexp, n_heads, keep_mask, causal, dropout_rate, dropout_key):
    dq, dkv = empty(q.shape, q.dtype), empty(kv.shape, kv.dtype)
    parts = *split_parts(q, n_heads, 1), *split_parts(kv, n_heads, 2)
    gradients = *split_parts(dq, n_heads, 1), *split_parts(dkv, n_heads, 2)
    options = keep_mask, causal, dropout_rate, dropout_key
    return _attend_backward(dout, out, *parts, logsumexp, options, gradients, (dq, dkv))


def _attend(q, k, v, keep_mask, causal, dropout_rate, dropout_key):
    """(out (B, T, D), logsumexp), or ``NotImplemented``."""
    result = attend(q, k, v, options_for(q, k, keep_mask, causal, None, dropout_rate, dropout_key))
    if result is NotImplemented:
        return result
    out, logsumexp = result
    return out.reshape(*out.shape[:2], -1), logsumexp


def _attend_backward(dout, out, q, k, v, logsumexp, options, gradients, result):
    """Write the gradients, which are views of ``result``, and return it, or return ``NotImplemented``."""
    keep_mask, causal, dropout_rate, dropout_key = options
    B, H, T, K = q.shape
    dout, out = dout.reshape(B, T, H, K), out.reshape(B, T, H, K)
    options = options_for(q, k, keep_mask, causal, None, dropout_rate, dropout_key)
    written = attend_backward(dout, out, q, k, v, logsumexp, options, gradients)
    return written if written is NotImplemented else result
