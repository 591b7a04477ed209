"""The kernels of attention on packed projections, in which a backend's attention reads and writes heads as views."""

from npformer import reference
from npformer.reference.math.attention import summed_to
from npformer.reference.math.packed_attention import split_parts, split_q_kv


def make_packed_kernels(kernel_of, empty, options_for, attend, attend_backward, without=""):
    """Make the kernels of self-attention and cross-attention for a backend.

    Parameters
    ----------
    kernel_of, without
        Those of the backend.
    empty : callable
        ``empty(shape, dtype)`` returns a new array.
    options_for : callable
        ``options_for(q, k, keep_mask, bias, causal, scale, dropout_rate, dropout_key)`` returns the options of the
        other two.
    attend : callable
        ``attend(q, k, v, out, options)`` writes ``out`` and returns logsumexp, or ``NotImplemented``.
    attend_backward : callable
        ``attend_backward(dout, out, q, k, v, logsumexp, gradients, options)`` writes the gradients (dq, dk, dv), and
        returns that of a bias for each head, or ``NotImplemented``.
    """

    @kernel_of(reference.self_attention, without=without)
    def self_attention(qkv, settings, keep_mask, bias, dropout_key):
        return forward(split_parts(qkv, *settings.parts), settings, keep_mask, bias, dropout_key)

    @kernel_of(reference.self_attention_backward, without=without)
    def self_attention_backward(dout, qkv, out, logsumexp, settings, keep_mask, bias, dropout_key):
        dqkv = empty(qkv.shape, qkv.dtype)
        heads, gradients = (split_parts(x, *settings.parts) for x in (qkv, dqkv))
        done = backward(dout, out, heads, logsumexp, gradients, settings, keep_mask, bias, dropout_key)
        return done if done is NotImplemented else (dqkv, *done) if done else dqkv

    @kernel_of(reference.cross_attention, without=without)
    def cross_attention(q, kv, settings, keep_mask, bias, dropout_key):
        return forward(split_q_kv(q, kv, settings), settings, keep_mask, bias, dropout_key)

    @kernel_of(reference.cross_attention_backward, without=without)
    def cross_attention_backward(dout, q, kv, out, logsumexp, settings, keep_mask, bias, dropout_key):
        dq, dkv = empty(q.shape, q.dtype), empty(kv.shape, kv.dtype)
        heads, gradients = split_q_kv(q, kv, settings), split_q_kv(dq, dkv, settings)
        done = backward(dout, out, heads, logsumexp, gradients, settings, keep_mask, bias, dropout_key)
        return done if done is NotImplemented else (dq, dkv, *done)

    def forward(heads, settings, *given):
        B, H, T, K = heads[0].shape
        out = empty((B, T, H * K), heads[0].dtype)
        logsumexp = attend(*heads, *split_parts(out, H), options_of(heads, settings, *given))
        return logsumexp if logsumexp is NotImplemented else (out, logsumexp)

    def backward(dout, out, heads, logsumexp, gradients, settings, keep_mask, bias, dropout_key):
        (dout,), (out,) = split_parts(dout, settings.n_heads), split_parts(out, settings.n_heads)
        options = options_of(heads, settings, keep_mask, bias, dropout_key)
        dbias = attend_backward(dout, out, *heads, logsumexp, gradients, options)
        return dbias if dbias is NotImplemented else () if bias is None else (summed_to(dbias, bias.shape),)

    def options_of(heads, settings, keep_mask, bias, dropout_key):
        q, k, _ = heads
        return options_for(q, k, keep_mask, bias, settings.causal, settings.scale, settings.dropout_rate, dropout_key)
