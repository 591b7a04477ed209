"""The layers of the Transformer: sublayers with residual connections (Vaswani et al. 2017, figure 1)."""

from npformer.arrays import Array
from npformer.layers.cache import KeyValueCache
from npformer.layers.multi_head import cross_attention_heads, self_attention_heads
from npformer.layers.position_wise import hidden_layer
from npformer.layers.sublayer import residual
from npformer.layers.types import Backward, Params, part
from npformer.reference import Ops
from npformer.reference.math.random import split_key
from npformer.reference.settings import LayerSettings


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
    >>> from npformer.models.initialization import Initializer
    >>> params = Initializer(seed=0, dtype="float64").encoder_layer(d_model=4, d_ff=8)
    >>> settings = layers.LayerSettings(layers.AttentionSettings(2))
    >>> x2, backward = layers.encoder_layer(reference.ops, params, np.ones((2, 3, 4)), settings)
    >>> dx0, grads = backward(np.ones_like(x2))
    >>> list(grads), grads["feed_forward"]["hidden"]["weight"].shape
    (['attention', 'attention_norm', 'feed_forward', 'feed_forward_norm'], (4, 8))
    """
    attention_key, feed_forward_key = split_key(dropout_key, 2)

    def attend(h, key):
        given = params["attention"], h, settings.attention, keep_mask
        return self_attention_heads(ops, *given, dropout_key=key, cache=cache)

    x1, attend_backward = _sublayer(ops, params, "attention", x0, attend, settings, attention_key)
    x2, feed_backward = _feed_forward(ops, params, x1, settings, feed_forward_key)

    def backward(dx2):
        dx1, feed_forward_grads = feed_backward(dx2)
        dx0, attention_grads = attend_backward(dx1)
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
    >>> from npformer.models.initialization import Initializer
    >>> params = Initializer(seed=0, dtype="float64").decoder_layer(d_model=4, d_ff=8)
    >>> x0, memory = np.ones((2, 3, 4)), np.ones((2, 5, 4))
    >>> settings = layers.LayerSettings(layers.AttentionSettings(2))
    >>> x3, backward = layers.decoder_layer(reference.ops, params, x0, memory, settings)
    >>> dx0, dmemory, grads = backward(np.ones_like(x3))
    >>> dx0.shape, dmemory.shape
    ((2, 3, 4), (2, 5, 4))
    """
    attention_key, memory_key, feed_forward_key = split_key(dropout_key, 3)

    def attend(h, key):
        given = params["attention"], h, settings.causal_attention, keep_mask
        return self_attention_heads(ops, *given, dropout_key=key, cache=cache)

    def attend_memory(h, key):
        given = params["memory_attention"], h, memory, settings.memory_attention, memory_keep_mask
        return cross_attention_heads(ops, *given, dropout_key=key)

    x1, attend_backward = _sublayer(ops, params, "attention", x0, attend, settings, attention_key)
    x2, attend_memory_backward = _sublayer(ops, params, "memory_attention", x1, attend_memory, settings, memory_key)
    x3, feed_backward = _feed_forward(ops, params, x2, settings, feed_forward_key)

    def backward(dx3):
        dx2, feed_forward_grads = feed_backward(dx3)
        dx1, dmemory, memory_attention_grads = attend_memory_backward(dx2)
        dx0, attention_grads = attend_backward(dx1)
        return dx0, dmemory, attention_grads | memory_attention_grads | feed_forward_grads

    return x3, backward


def _feed_forward(ops, params, x, settings, dropout_key):
    """The last sublayer of both layers."""

    def feed(h, key):
        return hidden_layer(ops, params["feed_forward"], h, settings.activation, settings.hidden_dropout_rate, key)

    return _sublayer(ops, params, "feed_forward", x, feed, settings, dropout_key)


def _sublayer(ops, params, name, x, inner, settings, dropout_key):
    """``residual`` with the parameters of this name; ``backward`` returns (dx, …, their gradients by name)."""
    norm = f"{name}_norm"
    y, residual_backward = residual(
        ops, part(params, name), part(params, norm), x, inner, settings, dropout_key=dropout_key
    )

    def backward(dy):
        *dinputs, grads, norm_grads = residual_backward(dy)
        return *dinputs, {name: grads, norm: norm_grads}

    return y, backward
