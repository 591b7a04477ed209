"""What decoding a token at a time needs besides the operations of training; nothing here has a backward pass."""

from types import SimpleNamespace

from npformer.reference.arrays import Array, namespace
from npformer.reference.attention import attention
from npformer.reference.checks import check_ids, check_int, check_shape
from npformer.reference.fused import linear_activation_dropout, linear_dropout_residual
from npformer.reference.layer_norm import layer_norm
from npformer.reference.linear import linear
from npformer.reference.packed_attention import split_parts
from npformer.reference.softmax import log_softmax


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
    norm: str = "pre",
    activation: str = "relu",
) -> Array:
    """``layers.decoder_layer`` for the newest token of each row, without dropout.

    Parameters
    ----------
    x0 : (B, D)
    params : nested dict
        Of ``layers.decoder_layer``.
    kv : (R, 2D)
        Cache of the self-attention; the newest keys and values are written into it.
    at : (B, T) int
        Where in it the tokens of each row are; ``at[:, -1]`` is where the newest are written.
    memory_kv : (R', 2D)
        Keys and values of the encoder's output.
    memory_at : (B, S) int
        Where in it those of each row's source are.
    memory_mask : bool (B, S), optional
        True = may attend.
    n_heads, norm, activation
        As for ``layers.decoder_layer``.

    Returns
    -------
    x3 : (B, D)
    """
    return layer_step(
        _OWN, x0, params, kv, at, memory_kv, memory_at, memory_mask, n_heads=n_heads, norm=norm, activation=activation
    )


def layer_step(ops, x0, params, kv, at, memory_kv, memory_at, memory_mask, *, n_heads, norm, activation):
    """``decoder_layer_step`` of these operations: linear maps, layer norm, and attention to a cache."""
    if norm not in ("pre", "post"):
        raise ValueError(f"norm={norm!r}, expected 'pre' or 'post'")
    namespace(x0=x0, kv=kv, memory_kv=memory_kv)
    check_cached(x0, kv, at, n_heads, None)
    check_cached(x0, memory_kv, memory_at, n_heads, memory_mask)
    D = x0.shape[-1]

    def attend(h, residual):
        qkv = apply(params["attention"]["qkv"], h)
        kv[at[:, -1]] = qkv[:, D:]
        heads = ops.cached_attention(qkv[:, :D], kv, at, n_heads)
        return apply(params["attention"]["out"], heads, residual)

    def attend_memory(h, residual):
        q = apply(params["memory_attention"]["q"], h)
        heads = ops.cached_attention(q, memory_kv, memory_at, n_heads, memory_mask)
        return apply(params["memory_attention"]["out"], heads, residual)

    def feed(h, residual):
        hidden = params["feed_forward"]["hidden"]
        a, _ = ops.linear_activation_dropout(h, hidden["weight"], hidden["bias"], activation)
        return apply(params["feed_forward"]["out"], a, residual)

    def apply(params, x, residual=None):
        if residual is None:
            return ops.linear(x, params["weight"], params["bias"])
        return ops.linear_dropout_residual(x, params["weight"], params["bias"], residual)

    def residual_block(norm_params, x, sublayer):
        gain, bias = norm_params["gain"], norm_params["bias"]
        if norm == "pre":
            return sublayer(ops.layer_norm(x, gain, bias)[0], x)
        return ops.layer_norm(sublayer(x, x), gain, bias)[0]

    x1 = residual_block(params["attention_norm"], x0, attend)
    x2 = residual_block(params["memory_attention_norm"], x1, attend_memory)
    return residual_block(params["feed_forward_norm"], x2, feed)


def cached_attention(q: Array, kv: Array, at: Array, n_heads: int, keep_mask: Array | None = None) -> Array:
    """Attention of one query a row to keys and values that were computed before and lie in a table.

    Several rows may point to the same entry, as beams that began alike do: nothing is copied when they part.

    Parameters
    ----------
    q : (B, D)
    kv : (R, 2D)
        The cache: a key and a value, all heads side by side, in each of its R entries.
    at : (B, S) int
        Where in the cache the S keys of each row are.
    n_heads : int
    keep_mask : bool (B, S), optional
        True = may attend.

    Returns
    -------
    out : (B, D)
        The heads side by side.

    Examples
    --------
    >>> import numpy as np
    >>> kv = np.array([[0.0, 1.0], [0.0, 3.0], [0.0, np.nan]])  # three entries, D = 1
    >>> cached_attention(np.ones((2, 1)), kv, np.array([[0, 1], [1, 1]]), n_heads=1)
    array([[2.],
           [3.]])
    """
    namespace(q=q, kv=kv)
    check_cached(q, kv, at, n_heads, keep_mask)
    (queries,) = split_parts(q[:, None], n_heads, 1, "q")
    k, v = split_parts(kv[at], n_heads, 2, "kv")
    if keep_mask is not None:
        keep_mask = keep_mask[:, None, None]
    heads, _ = attention(queries, k, v, keep_mask)
    return heads.reshape(q.shape)


_OWN = SimpleNamespace(
    linear=linear,
    linear_activation_dropout=linear_activation_dropout,
    linear_dropout_residual=linear_dropout_residual,
    layer_norm=layer_norm,
    cached_attention=cached_attention,
)


def check_cached(q, kv, at, n_heads, keep_mask):
    """q (B, D), kv (R, 2D), at (B, S) with 0 <= at < R, keep_mask (B, S)."""
    check_ids(at, len(kv), "at")
    check_int("n_heads", n_heads, at_least=1)
    if q.ndim != 2 or q.shape[1] % n_heads:
        raise ValueError(f"q has shape {q.shape}, expected (B, D) with D divisible by {n_heads=}")
    if kv.ndim != 2 or kv.shape[1] != 2 * q.shape[1]:
        raise ValueError(f"kv has shape {kv.shape}, expected (R, 2D) with D={q.shape[1]}")
    if at.ndim != 2 or len(at) != len(q):
        raise ValueError(f"at has shape {at.shape}, expected (B, S) with B={len(q)}")
    if keep_mask is not None:
        check_shape(keep_mask=(keep_mask, at.shape))


def log_softmax_top_k(x: Array, k: int) -> tuple[Array, Array]:
    """The k largest entries of log softmax(x) in each row, the largest first, and where they are.

    Parameters
    ----------
    x : (B, V)
        Logits.
    k : int
        At least 1; of fewer than k entries all are returned.

    Returns
    -------
    values : (B, k)
    ids : (B, k) int
        Of equal values the one with the lower id comes first, as with ``argmax``.

    Examples
    --------
    >>> import numpy as np
    >>> values, ids = log_softmax_top_k(np.log(np.array([[0.1, 0.6, 0.3]])), k=2)
    >>> np.exp(values).round(3), ids
    (array([[0.6, 0.3]]), array([[1, 2]]))
    """
    xp = namespace(x=x)
    check_int("k", k, at_least=1)
    if x.ndim != 2:
        raise ValueError(f"x has shape {x.shape}, expected (B, V)")
    y = log_softmax(x)
    ids = xp.argsort(-y.real, axis=-1, kind="stable")[:, :k]
    return xp.take_along_axis(y, ids, axis=-1), ids
