"""The layers of the Transformer: sublayers with residual connections (Vaswani et al. 2017, figure 1)."""

from npformer.arrays import Array
from npformer.layers.cache import KeyValueCache
from npformer.layers.multi_head import cross_attention_heads, self_attention_heads
from npformer.layers.position_wise import hidden_layer
from npformer.layers.sublayer import add_and_norm, norm_before
from npformer.layers.types import Backward, Params, part
from npformer.operations.settings import LayerSettings
from npformer.reference import Ops
from npformer.reference.math.random import keys_from


def encoder_layer(
    ops: Ops,
    params: Params,
    x0: Array,
    settings: LayerSettings,
    keep_mask: Array | None = None,
    *,
    dropout_key: int | None = None,
    cache: KeyValueCache | None = None,
) -> tuple[Array, Backward]:
    """Self-attention, then feed-forward (figure 1, left); with ``causal``, the layer of a decoder-only model.

    Parameters
    ----------
    ops : Ops
    params : {"attention", "attention_norm", "feed_forward", "feed_forward_norm"}
        The parameters of ``self_attention`` and of ``feed_forward``, and those of ``layer_norm`` for each.
    x0 : (B, S, D), or (R, D) with a cache
    settings : LayerSettings
    keep_mask : bool, broadcasts to (B, H, S, S), optional
        True = may attend.
    dropout_key : int, optional
        Required if a rate is above 0.
    cache : KeyValueCache, optional
        For decoding: x0 (R, D) is only the newest position of each row, and attends to itself and the earlier
        positions. Each layer needs its own cache, and writes the keys and values of x0 into its entries
        ``cache.at[:, -1]``; see ``KeyValueCache``.

    Returns
    -------
    x2 : (B, S, D), or (R, D) with a cache
    backward : dx2 -> (dx0, grads)
        Must not be called if there is a cache.

    Examples
    --------
    >>> from npformer import layers, reference
    >>> from npformer.models.initialization import Initializer, LayerShapes
    >>> params = Initializer(seed=0, dtype="float64").encoder_layer(LayerShapes(d_model=4, d_ff=8))
    >>> settings = layers.LayerSettings(layers.AttentionSettings(2))
    >>> x2, backward = layers.encoder_layer(reference.ops, params, np.ones((2, 3, 4)), settings)
    >>> dx0, grads = backward(np.ones_like(x2))
    >>> list(grads), grads["feed_forward"]["hidden"]["weight"].shape
    (['attention', 'attention_norm', 'feed_forward', 'feed_forward_norm'], (4, 8))
    """
    attention_key, feed_forward_key = keys_from(dropout_key, 2)

    x1, attention_backward = _attention(ops, params, x0, settings, settings.attention, keep_mask, attention_key, cache)
    x2, feed_forward_backward = _feed_forward(ops, params, x1, settings, feed_forward_key)

    def backward(dx2):
        dx1, feed_forward_grads = feed_forward_backward(dx2)
        dx0, attention_grads = attention_backward(dx1)
        return dx0, attention_grads | feed_forward_grads

    return x2, backward


def decoder_layer(
    ops: Ops,
    params: Params,
    x0: Array,
    memory: Array | KeyValueCache,
    settings: LayerSettings,
    keep_mask: Array | None = None,
    memory_keep_mask: Array | None = None,
    *,
    dropout_key: int | None = None,
    cache: KeyValueCache | None = None,
) -> tuple[Array, Backward]:
    """Causal self-attention, attention to the encoder's output, then feed-forward (figure 1, right).

    With caches, only the newest position of each row is computed, as in decoding, and there is no backward pass.

    Parameters
    ----------
    ops : Ops
    params : {"attention", "attention_norm", "memory_attention", "memory_attention_norm", "feed_forward", \
"feed_forward_norm"}
        The parameters of ``self_attention``, ``cross_attention`` and ``feed_forward``, and those of ``layer_norm`` for
        each.
    x0 : (B, T, D), or (R, D) with caches
    memory : (B, S, D), or a KeyValueCache
        The encoder's output, or its keys and values.
    settings : LayerSettings
    keep_mask : bool, broadcasts to (B, H, T, T), optional
        Applied in addition to the causal mask.
    memory_keep_mask : bool, broadcasts to (B, H, T, S), optional
    dropout_key, cache
        As for ``encoder_layer``; the cache is that of the self-attention.

    Returns
    -------
    x3 : like x0
    backward : dx3 -> (dx0, dmemory, grads)
        Must not be called if there are caches.

    Examples
    --------
    >>> from npformer import layers, reference
    >>> from npformer.models.initialization import Initializer, LayerShapes
    >>> params = Initializer(seed=0, dtype="float64").decoder_layer(LayerShapes(d_model=4, d_ff=8))
    >>> x0, memory = np.ones((2, 3, 4)), np.ones((2, 5, 4))
    >>> settings = layers.LayerSettings(layers.AttentionSettings(2))
    >>> x3, backward = layers.decoder_layer(reference.ops, params, x0, memory, settings)
    >>> dx0, dmemory, grads = backward(np.ones_like(x3))
    >>> dx0.shape, dmemory.shape
    ((2, 3, 4), (2, 5, 4))
    """
    attention_key, memory_key, feed_forward_key = keys_from(dropout_key, 3)
    causal = settings.causal_attention

    x1, attention_backward = _attention(ops, params, x0, settings, causal, keep_mask, attention_key, cache)
    x2, memory_backward = _memory_attention(ops, params, x1, memory, settings, memory_keep_mask, memory_key)
    x3, feed_forward_backward = _feed_forward(ops, params, x2, settings, feed_forward_key)

    def backward(dx3):
        dx2, feed_forward_grads = feed_forward_backward(dx3)
        dx1, dmemory, memory_grads = memory_backward(dx2)
        dx0, attention_grads = attention_backward(dx1)
        return dx0, dmemory, attention_grads | memory_grads | feed_forward_grads

    return x3, backward


# The sublayers. Each is x + dropout(inner(LN(x)) W + b), or, with norm="post", LN(x + dropout(inner(x) W + b)).


def _attention(ops, params, x, settings, attention, keep_mask, dropout_key, cache):
    """Self-attention; ``backward`` returns (dx, the gradients by the names of the layer's parameters)."""
    own, norm = part(params, "attention"), part(params, "attention_norm")
    heads_key, out_key = keys_from(dropout_key, 2)

    h, norm_backward = norm_before(ops, norm, x, settings)
    z, heads_backward = self_attention_heads(ops, own, h, attention, keep_mask, dropout_key=heads_key, cache=cache)
    y, add_backward = add_and_norm(ops, own, norm, z, x, settings, dropout_key=out_key)

    return y, _sublayer_backward("attention", add_backward, heads_backward, norm_backward)


def _memory_attention(ops, params, x, memory, settings, keep_mask, dropout_key):
    """Attention to the encoder's output; ``backward`` returns (dx, dmemory, gradients)."""
    own, norm = part(params, "memory_attention"), part(params, "memory_attention_norm")
    heads_key, out_key = keys_from(dropout_key, 2)
    attention = settings.memory_attention

    h, norm_backward = norm_before(ops, norm, x, settings)
    z, heads_backward = cross_attention_heads(ops, own, h, memory, attention, keep_mask, dropout_key=heads_key)
    y, add_backward = add_and_norm(ops, own, norm, z, x, settings, dropout_key=out_key)

    return y, _sublayer_backward("memory_attention", add_backward, heads_backward, norm_backward)


def _feed_forward(ops, params, x, settings, dropout_key):
    """The last sublayer of both layers; ``backward`` returns (dx, gradients)."""
    own, norm = part(params, "feed_forward"), part(params, "feed_forward_norm")
    hidden_key, out_key = keys_from(dropout_key, 2)

    h, norm_backward = norm_before(ops, norm, x, settings)
    z, hidden_backward = hidden_layer(ops, own, h, settings.activation, settings.hidden_dropout_rate, hidden_key)
    y, add_backward = add_and_norm(ops, own, norm, z, x, settings, dropout_key=out_key)

    return y, _sublayer_backward("feed_forward", add_backward, hidden_backward, norm_backward)


def _sublayer_backward(name, add_backward, inner_backward, norm_backward):
    """The backward pass of a sublayer, of those of its three lines: dy -> (dx, …, the gradients by their names)."""

    def backward(dy):
        dz, dx_residual, out_grads, norm_after_grads = add_backward(dy)
        dh, *dinputs, grads = inner_backward(dz)  # attention to the memory has its gradient, too
        dx, norm_grads = norm_backward(dh)
        return dx_residual + dx, *dinputs, {name: grads | out_grads, f"{name}_norm": norm_grads | norm_after_grads}

    return backward
