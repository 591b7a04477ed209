"""The operations that only decoding needs, which processes one token at a time; they have no backward pass."""

from typing import Literal

import numpy as np

from npformer.arrays import Array
from npformer.operations.record import operation
from npformer.reference.activations import Activation
from npformer.reference.attention import attention
from npformer.reference.packed_attention import split_parts
from npformer.reference.softmax import log_softmax

PARAMS = {  # the parameters of a decoder layer that one decoding step reads
    "attention": ("out",),
    "memory_attention": ("q", "out"),
    "feed_forward": ("hidden", "out"),
    **dict.fromkeys(("attention_norm", "memory_attention_norm", "feed_forward_norm"), ("gain",)),
}


def check_params(params):
    """Raise an error if a parameter of the layer is missing."""
    for sublayer, names in PARAMS.items():
        missing = [name for name in names if name not in params.get(sublayer, ())]
        if missing:
            raise ValueError(f"params lacks {sublayer}.{missing[0]}, expected the params of layers.decoder_layer")


@operation(
    "x0: B H*K>0, kv: P 2*H*K written, at: B T>0 ids<P, memory_kv: R 2*H*K, memory_at: B S ids<R, "
    "memory_mask: B 1 1 S mask, n_heads = H -> x3: B H*K"
)
def decoder_layer_step(
    x0: Array,
    params: dict,
    kv: Array,
    at: Array,
    memory_kv: Array,
    memory_at: Array,
    memory_mask: Array | None = None,
    *,
    n_heads: int,
    norm: Literal["pre", "post"] = "pre",
    activation: Activation = "relu",
) -> Array:
    """``layers.decoder_layer`` for the newest token of each row, without dropout.

    Parameters
    ----------
    x0 : (B, D)
    params : nested dict
        The parameters of ``layers.decoder_layer``.
    kv : (P, 2D)
        Cache of the self-attention; the keys and values of the newest tokens are written into it.
    at : (B, T) int
        The cache entries of the tokens of each row; the newest token is written to the entry ``at[:, -1]``.
    memory_kv : (R, 2D)
        Keys and values of the encoder's output.
    memory_at : (B, S) int
        The entries of ``memory_kv`` that belong to the source of each row.
    memory_mask : bool (B, 1, 1, S), optional
        As of ``padding_mask``: True = may attend.
    n_heads, norm, activation
        As for ``layers.decoder_layer``.

    Returns
    -------
    x3 : (B, D)
    """
    from npformer import reference  # here, because it imports this file

    caches, options = (kv, at, memory_kv, memory_at, memory_mask), {"norm": norm, "activation": activation}
    return composed_step(reference, x0, params, *caches, n_heads=n_heads, **options)


def composed_step(ops, x0, params, kv, at, memory_kv, memory_at, memory_mask, **options):
    """``decoder_layer_step``, composed of the operations of the module ``ops``."""
    from npformer import layers  # here, because it imports this file

    check_params(params)
    cache, memory = layers.KeyValueCache(kv, at), layers.KeyValueCache(memory_kv, memory_at, memory_mask)
    return layers.decoder_layer(ops, params, x0, memory, cache=cache, **options)[0]


@operation(
    "q: B H*K>0, kv: P 2*H*K, at: B S ids<P, n_heads = H, keep_mask: B 1 1 S mask -> out: B H*K", flops="4*B*H*S*K"
)
def cached_attention(q: Array, kv: Array, at: Array, n_heads: int, keep_mask: Array | None = None) -> Array:
    """Attention of one query per row to keys and values that were computed before and are stored in a cache.

    Several rows may point to the same entry, as beams with a common beginning do: no entry is copied when the beams
    diverge.

    Parameters
    ----------
    q : (B, D)
    kv : (P, 2D)
        The cache: a key and a value, all heads side by side, in each of its P entries.
    at : (B, S) int
        The cache entries of the S keys of each row.
    n_heads : int
    keep_mask : bool (B, 1, 1, S), optional
        As of ``padding_mask``: True = may attend.

    Returns
    -------
    out : (B, D)
        The outputs of all heads, side by side.

    Examples
    --------
    >>> import numpy as np
    >>> kv = np.array([[0.0, 1.0], [0.0, 3.0], [0.0, np.nan]])  # three entries, D = 1
    >>> cached_attention(np.ones((2, 1)), kv, np.array([[0, 1], [1, 1]]), n_heads=1)
    array([[2.],
           [3.]])
    """
    (queries,) = split_parts(q[:, None], n_heads, 1)
    k, v = split_parts(kv[at], n_heads, 2)
    heads, _ = attention(queries, k, v, keep_mask)
    return heads.reshape(q.shape)


@operation("x: B V>0 -> values: B k, ids: B k ids")
def log_softmax_top_k(x: Array, k: int) -> tuple[Array, Array]:
    """The k largest entries of log softmax(x) in each row, the largest first, and their indices.

    Parameters
    ----------
    x : (B, V)
        Logits.
    k : int
        At least 1; if V < k, all V entries are returned.

    Returns
    -------
    values : (B, k)
    ids : (B, k) int
        If logits are equal, the one with the lowest id comes first, as with ``argmax``.

    Examples
    --------
    >>> import numpy as np
    >>> values, ids = log_softmax_top_k(np.log(np.array([[0.1, 0.6, 0.3]])), k=2)
    >>> np.exp(values).round(3), ids
    (array([[0.6, 0.3]]), array([[1, 2]]))
    """
    ids = np.argsort(-x.real, axis=-1, kind="stable")[:, :k]
    return np.take_along_axis(log_softmax(x), ids, axis=-1), ids
