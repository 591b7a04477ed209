"""A layer in decoding: one position of each row, beside the keys and values of the earlier ones.

There is no backward pass, and no dropout. Masks belong to the cache, which knows what each row has
read.
"""

from npformer.errors import UserError
from npformer.layers.multi_head import packed_heads
from npformer.layers.projection import project
from npformer.layers.sublayer import add_and_norm, feed_forward_sublayer, norm_before


def decode_layer(ops, params, x, settings, cache, memory=None):
    """The output (R, D) of ``encoder_layer`` or, with a memory, of ``decoder_layer``.

    ``x`` (R, D) are the newest positions, whose keys and values are written into the cache, a
    ``KeyValueCache`` or a ``BlockCache``. ``memory`` has the keys and values of the encoder's
    output.
    """
    if memory is not None:
        settings = settings.as_decoder
    x = _attend_to_earlier(ops, params, x, settings, cache)
    if memory is not None:
        x = _attend_to_memory(ops, params, x, settings, memory)
    x, _ = feed_forward_sublayer(ops, params, x, settings)
    return x


def _attend_to_earlier(ops, params, x, settings, cache):
    """``self_attention_sublayer`` of the newest positions."""
    own, norm = params["attention"], params["attention_norm"]

    h, _ = norm_before(ops, norm, x, settings)
    heads = newest_heads(ops, own, h, settings.attention, cache)
    y, _ = add_and_norm(ops, own, norm, heads, x, settings)
    return y


def _attend_to_memory(ops, params, x, settings, memory):
    """``memory_sublayer`` where the keys and values of the memory are there."""
    own, norm = params["memory_attention"], params["memory_attention_norm"]

    h, _ = norm_before(ops, norm, x, settings)
    q, _ = project(ops, own, h, ("q",))
    heads = memory.attend(ops, q, settings.memory_attention)
    y, _ = add_and_norm(ops, own, norm, heads, x, settings)
    return y


def newest_heads(ops, params, x, settings, cache, *, bias=None):
    """``self_attention_heads`` of the newest positions x (R, D).

    ``bias`` broadcasts to (R, H, 1, S); a window takes the last of it.
    """
    if cache.rotary != settings.rotary:
        both = f"the settings have rotary={settings.rotary}, the keys of the cache "
        both += f"rotary={cache.rotary}"
        advice = "as of KeyValueCache(kv, at, rotary=settings.rotary)"
        raise UserError(f"{both}: expected the same, {advice}")
    qkv, _ = packed_heads(ops, params, x, settings, cache.newest_positions)
    head_width = qkv.shape[-1] // settings.n_packed_heads
    query_width = head_width * settings.n_heads
    cache.append(qkv[:, query_width:])
    if settings.window is not None:
        cache = cache.latest(settings.window)
        if bias is not None:
            bias = bias[..., -settings.window :]
    return cache.attend(ops, qkv[:, :query_width], settings.without_layer_options, bias)


def no_backward(*_):
    """The backward pass of a layer with a cache: what it would need has not been kept."""
    raise TypeError("a layer with a cache has no backward pass: call it without one for gradients")


def check_beside_cache(settings, dropout_key, *masks):
    """Raise an error if a layer with a cache is given dropout, or a mask, which it would ignore."""
    rates = {
        "attention.dropout_rate": settings.attention.dropout_rate,
        "dropout_rate": settings.dropout_rate,
        "hidden_dropout_rate": settings.hidden_dropout_rate,
    }
    for name, rate in rates.items():
        if rate > 0:
            raise UserError(f"settings.{name}={rate} beside a cache, expected 0")
    if dropout_key is not None:
        raise UserError("dropout_key is given beside a cache, expected None")
    if any(mask is not None for mask in masks):
        advice = "put it into KeyValueCache(kv, at, keep_mask)"
        raise UserError(f"keep_mask is given beside a cache, expected None: {advice}")
