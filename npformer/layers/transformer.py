"""The layers of the Transformer (Vaswani et al. 2017, figure 1).

Each box of the figure, with its "Add & Norm", is a function of ``sublayer.py``. A ``cache`` belongs
to decoding alone, which has a file of its own, ``decoding.py``.
"""

from npformer.arrays import Array
from npformer.layers.cache import KeyValueCache
from npformer.layers.decoding import check_beside_cache, decode_layer, no_backward
from npformer.layers.sublayer import (
    feed_forward_sublayer,
    memory_sublayer,
    self_attention_sublayer,
)
from npformer.layers.types import Backward, Params
from npformer.operations.options import check_instance
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
    """Self-attention, then feed-forward (figure 1, left).

    With ``causal`` in its settings it is the layer of a decoder-only model.

    Parameters
    ----------
    ops : Ops
    params : {"attention", "attention_norm", "feed_forward", "feed_forward_norm"}
        The parameters of ``self_attention`` and of ``feed_forward``, and those of ``layer_norm``
        for each.
    x0 : (B, S, D), or (R, D) with a cache
    settings : LayerSettings
    keep_mask : bool, broadcasts to (B, H, S, S), optional
        True = may attend.
    dropout_key : int, optional
        Required if a rate is above 0. Decoding has no dropout: with a cache, there is no key, and
        the rates are 0.
    cache : KeyValueCache, optional
        For decoding: x0 (R, D) is only the newest position of each row, and attends to itself and
        the earlier positions. Each layer needs its own cache, and writes the keys and values of x0
        into its entries ``cache.at[:, -1]``; see ``KeyValueCache``.

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
    if cache is not None:  # a step of decoding, which is not what the figure shows
        check_beside_cache(settings, dropout_key, keep_mask)
        return decode_layer(ops, params, x0, settings, cache), no_backward
    key1, key2 = keys_from(dropout_key, 2)  # one for each sublayer

    x1, attention_backward = self_attention_sublayer(ops, params, x0, settings, keep_mask, key1)
    x2, feed_backward = feed_forward_sublayer(ops, params, x1, settings, key2)

    def backward(dx2):
        dx1, feed_grads = feed_backward(dx2)
        dx0, attention_grads = attention_backward(dx1)
        return dx0, attention_grads | feed_grads

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
    """Causal self-attention, attention to a memory, then feed-forward (figure 1, right).

    With caches, only the newest position of each row is computed, as in decoding, and there is no
    backward pass.

    Parameters
    ----------
    ops : Ops
    params : {"attention", "memory_attention", "feed_forward", and each of them with "_norm"}
        The parameters of ``self_attention``, ``cross_attention`` and ``feed_forward``, and those of
        ``layer_norm`` for each, under "attention_norm" and so on.
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
    if cache is not None:  # a step of decoding
        check_beside_cache(settings, dropout_key, keep_mask, memory_keep_mask)
        check_instance("memory", memory, KeyValueCache)
        return decode_layer(ops, params, x0, settings, cache, memory), no_backward
    if isinstance(memory, KeyValueCache):
        advice = "give the layer's cache, too, for a step of decoding"
        raise TypeError(f"memory is a KeyValueCache, expected an array (B, S, D): {advice}")
    settings = settings.as_decoder
    key1, key2, key3 = keys_from(dropout_key, 3)

    x1, attention_backward = self_attention_sublayer(ops, params, x0, settings, keep_mask, key1)
    x2, memory_backward = memory_sublayer(ops, params, x1, memory, settings, memory_keep_mask, key2)
    x3, feed_backward = feed_forward_sublayer(ops, params, x2, settings, key3)

    def backward(dx3):
        dx2, feed_grads = feed_backward(dx3)
        dx1, dmemory, memory_grads = memory_backward(dx2)
        dx0, attention_grads = attention_backward(dx1)
        return dx0, dmemory, attention_grads | memory_grads | feed_grads

    return x3, backward
