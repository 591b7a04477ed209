"""A layer in decoding: one position of each row, beside the keys and values of the earlier ones.

There is no backward pass. Masks belong to the cache, which knows what each row has read.
"""

from functools import partial

from npformer.layers.multi_head import packed_heads
from npformer.layers.position_wise import hidden_layer_of
from npformer.layers.projection import project
from npformer.layers.sublayer import sublayer
from npformer.reference.math.random import keys_from


def decode_layer(ops, params, x, settings, cache, memory=None, dropout_key=None):
    """The output (R, D) of ``encoder_layer`` or, with a memory, of ``decoder_layer``.

    ``x`` (R, D) are the newest positions, whose keys and values are written into the cache, a
    ``KeyValueCache`` or a ``BlockCache``. ``memory`` has the keys and values of the encoder's
    output.
    """
    attention = settings.attention if memory is None else settings.causal_attention
    inner = {"attention": partial(newest_heads, settings=attention, cache=cache)}
    if memory is not None:
        others = settings.memory_attention
        inner["memory_attention"] = partial(memory_heads, settings=others, cache=memory)
    inner["feed_forward"] = hidden_layer_of(settings)

    keys = keys_from(dropout_key, len(inner))
    for (name, compute), key in zip(inner.items(), keys, strict=True):
        x, _ = sublayer(ops, params, name, x, compute, settings, key)
    return x


def newest_heads(ops, params, x, settings, cache, *, bias=None, dropout_key=None):
    """``self_attention_heads`` of the newest positions x (R, D); there is no dropout of weights.

    ``bias`` broadcasts to (R, H, 1, S); a window takes the last of it.
    """
    if cache.rotary != settings.rotary:
        both = f"the settings have rotary={settings.rotary}, the keys of the cache "
        both += f"rotary={cache.rotary}"
        advice = "as of KeyValueCache(kv, at, rotary=settings.rotary)"
        raise ValueError(f"{both}: expected the same, {advice}")
    qkv, _ = packed_heads(ops, params, x, settings, cache.newest_positions)
    n_queries = qkv.shape[-1] // sum(settings.parts) * settings.n_heads
    cache.append(qkv[:, n_queries:])
    if settings.window is not None:
        cache = cache.latest(settings.window)
        if bias is not None:
            bias = bias[..., -settings.window :]
    return cache.attend(ops, qkv[:, :n_queries], settings.of_operation, bias), no_backward


def memory_heads(ops, params, x, settings, cache, *, dropout_key=None):
    """``cross_attention_heads`` of x (R, D), where the keys and values of the memory are there."""
    q, _ = project(ops, params, x, ("q",))
    return cache.attend(ops, q, settings), no_backward


def no_backward(*_):
    """The backward pass of a layer with a cache: what it would need has not been kept."""
    raise TypeError("a layer with a cache has no backward pass: call it without one for gradients")


def check_no_mask(*masks):
    """Raise an error if a layer with a cache is given a mask, which it would ignore."""
    if any(mask is not None for mask in masks):
        advice = "put it into KeyValueCache(kv, at, keep_mask)"
        raise ValueError(f"keep_mask is given beside a cache, expected None: {advice}")
