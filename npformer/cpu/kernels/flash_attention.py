"""Attention in tiles, of heads: ``cpu/attention_tiles`` has the loops."""

from npformer import reference
from npformer.cpu.attention_tiles import KNOWN, as_heads, attend, attend_backward, kernel_options
from npformer.cpu.backend import kernel_of
from npformer.reference.math.attention import summed_to
from npformer.runtime.memory import empty


@kernel_of(reference.flash_attention, as_it_lies="q k v", knows=KNOWN)
def flash_attention(q, k, v, keep_mask, bias, options, dropout_key):
    kernel_arguments = kernel_options(q, k, keep_mask, bias, options, dropout_key)
    q4, k4, v4 = map(as_heads, (q, k, v))
    out = _empty_heads(q4, v4)
    saved = attend(q4, k4, v4, out, kernel_arguments)
    if saved is NotImplemented:
        return NotImplemented
    peak, total = (x.reshape(q.shape[:-1]) for x in saved)
    return out.reshape(*q.shape[:-1], v.shape[-1]), peak, total


@kernel_of(reference.flash_attention_backward, as_it_lies="dout q k v out", knows=KNOWN)
def flash_attention_backward(
    dout, q, k, v, out, peak, total, keep_mask, bias, options, dropout_key
):
    heads = tuple(map(as_heads, (q, k, v, out)))
    rows_shape = heads[0].shape[:-1]
    saved = (x.reshape(rows_shape) for x in (peak, total))
    gradients = tuple(empty(x.shape, x.dtype) for x in (q, k, v))
    dheads = map(as_heads, gradients)
    kernel_arguments = kernel_options(q, k, keep_mask, bias, options, dropout_key)
    dbias = attend_backward(as_heads(dout), heads, saved, dheads, kernel_arguments)
    if dbias is NotImplemented:
        return NotImplemented
    return gradients if bias is None else (*gradients, of_bias(dbias, bias, q))


def _empty_heads(q, v):
    """A new array (B, H, T, Kv), whose heads lie side by side."""
    B, H, T, _ = q.shape
    return empty((B, T, H, v.shape[-1]), q.dtype).swapaxes(1, 2)


def of_bias(dbias, bias, q):
    """The gradient of a bias, from that for each head."""
    return summed_to(dbias.reshape(*q.shape[:-2], *dbias.shape[2:]), bias.shape)
