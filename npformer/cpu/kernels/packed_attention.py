"""Attention on packed projections: heads are views, and results and gradients are written in packed form."""

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.kernels.flash_attention import attend, attend_backward, of_bias, options_for
from npformer.reference.math.packed_attention import split_parts, split_q_kv
from npformer.runtime.memory import empty


@kernel_of(reference.self_attention)
def self_attention(qkv, settings, keep_mask, bias, dropout_key):
    return _attend(*split_parts(qkv, *settings.parts), settings, keep_mask, bias, dropout_key)


@kernel_of(reference.self_attention_backward)
def self_attention_backward(dout, qkv, out, logsumexp, settings, keep_mask, bias, dropout_key):
    dqkv = empty(qkv.shape, qkv.dtype)
    given = dout, out, *split_parts(qkv, *settings.parts), logsumexp, settings, keep_mask, bias, dropout_key
    return _attend_backward(*given, split_parts(dqkv, *settings.parts), (dqkv,))


@kernel_of(reference.cross_attention)
def cross_attention(q, kv, settings, keep_mask, bias, dropout_key):
    return _attend(*split_q_kv(q, kv, settings), settings, keep_mask, bias, dropout_key)


@kernel_of(reference.cross_attention_backward)
def cross_attention_backward(dout, q, kv, out, logsumexp, settings, keep_mask, bias, dropout_key):
    dq, dkv = empty(q.shape, q.dtype), empty(kv.shape, kv.dtype)
    given = dout, out, *split_q_kv(q, kv, settings), logsumexp, settings, keep_mask, bias, dropout_key
    return _attend_backward(*given, split_q_kv(dq, dkv, settings), (dq, dkv))


def _attend(q, k, v, settings, keep_mask, bias, dropout_key):
    """(out (B, T, D), logsumexp), or ``NotImplemented``."""
    result = attend(q, k, v, _options(q, k, settings, keep_mask, bias, dropout_key))
    if result is NotImplemented:
        return result
    out, logsumexp = result
    return out.reshape(*out.shape[:2], -1), logsumexp


def _attend_backward(dout, out, q, k, v, logsumexp, settings, keep_mask, bias, dropout_key, gradients, result):
    """Write the gradients, views of ``result``, and return it with that of a bias, or return ``NotImplemented``."""
    B, H, T, K = q.shape
    dout, out = dout.reshape(B, T, H, K), out.reshape(B, T, H, K)
    options = _options(q, k, settings, keep_mask, bias, dropout_key)
    dbias = attend_backward(dout, out, q, k, v, logsumexp, options, gradients)
    if dbias is NotImplemented:
        return NotImplemented
    result = result if bias is None else (*result, of_bias(dbias, bias, q))
    return result if len(result) > 1 else result[0]


def _options(q, k, settings, keep_mask, bias, dropout_key):
    return options_for(q, k, keep_mask, bias, settings.causal, settings.scale, settings.dropout_rate, dropout_key)
