"""Attention between projections as they come out of one matrix product: all heads, and q, k, v, side by side."""

from npformer.reference.arrays import Array, namespace
from npformer.reference.checks import check_int
from npformer.reference.flash_attention import flash_attention, flash_attention_backward
from npformer.reference.heads import merge_heads


def self_attention(
    qkv: Array,
    n_heads: int,
    keep_mask: Array | None = None,
    *,
    causal: bool = False,
    dropout_rate: float = 0.0,
    key: int | None = None,
) -> tuple[Array, Array]:
    """The attention of all heads, from queries, keys and values that stand side by side (section 3.2.2).

    Parameters
    ----------
    qkv : (B, T, 3D)
        Queries, keys and values, one projection of one input.
    n_heads : int
    keep_mask : bool, broadcasts to (B, H, T, T), optional
    causal, dropout_rate, key
        As for ``attention``.

    Returns
    -------
    out : (B, T, D)
        The heads side by side again.
    logsumexp : (B, H, T)
        For the backward pass, as in ``flash_attention``.

    Examples
    --------
    >>> import numpy as np
    >>> out, logsumexp = self_attention(np.ones((1, 10, 3 * 512)), n_heads=8)
    >>> out.shape, logsumexp.shape
    ((1, 10, 512), (1, 8, 10))
    """
    q, k, v = split_parts(qkv, n_heads, 3, "qkv")
    heads, logsumexp = flash_attention(q, k, v, keep_mask, causal=causal, dropout_rate=dropout_rate, key=key)
    return merge_heads(heads), logsumexp


def self_attention_backward(
    dout: Array,
    qkv: Array,
    out: Array,
    logsumexp: Array,
    n_heads: int,
    keep_mask: Array | None = None,
    *,
    causal: bool = False,
    dropout_rate: float = 0.0,
    key: int | None = None,
) -> Array:
    """dqkv; the options have to be those of the forward pass."""
    q, k, v = split_parts(qkv, n_heads, 3, "qkv")
    (dheads,), (heads,) = split_parts(dout, n_heads, 1, "dout"), split_parts(out, n_heads, 1, "out")
    options = {"causal": causal, "dropout_rate": dropout_rate, "key": key}
    dq, dk, dv = flash_attention_backward(dheads, q, k, v, heads, logsumexp, keep_mask, **options)
    return join_parts(dq, dk, dv)


def cross_attention(
    q: Array,
    kv: Array,
    n_heads: int,
    keep_mask: Array | None = None,
    *,
    causal: bool = False,
    dropout_rate: float = 0.0,
    key: int | None = None,
) -> tuple[Array, Array]:
    """The same with keys and values, side by side, of another sequence: the decoder's look at the source.

    Parameters
    ----------
    q : (B, T, D)
    kv : (B, S, 2D)
    n_heads : int
    keep_mask : bool, broadcasts to (B, H, T, S), optional
    causal, dropout_rate, key
        As for ``attention``.

    Returns
    -------
    out : (B, T, D)
    logsumexp : (B, H, T)

    Examples
    --------
    >>> import numpy as np
    >>> cross_attention(np.ones((1, 10, 512)), np.ones((1, 7, 2 * 512)), n_heads=8)[0].shape
    (1, 10, 512)
    """
    (q,), (k, v) = split_parts(q, n_heads, 1, "q"), split_parts(kv, n_heads, 2, "kv")
    heads, logsumexp = flash_attention(q, k, v, keep_mask, causal=causal, dropout_rate=dropout_rate, key=key)
    return merge_heads(heads), logsumexp


def cross_attention_backward(
    dout: Array,
    q: Array,
    kv: Array,
    out: Array,
    logsumexp: Array,
    n_heads: int,
    keep_mask: Array | None = None,
    *,
    causal: bool = False,
    dropout_rate: float = 0.0,
    key: int | None = None,
) -> tuple[Array, Array]:
    """The gradients (dq, dkv); the options have to be those of the forward pass."""
    (q,), (k, v) = split_parts(q, n_heads, 1, "q"), split_parts(kv, n_heads, 2, "kv")
    (dheads,), (heads,) = split_parts(dout, n_heads, 1, "dout"), split_parts(out, n_heads, 1, "out")
    options = {"causal": causal, "dropout_rate": dropout_rate, "key": key}
    dq, dk, dv = flash_attention_backward(dheads, q, k, v, heads, logsumexp, keep_mask, **options)
    return join_parts(dq), join_parts(dk, dv)


def split_parts(x: Array, n_heads: int, n_parts: int, name: str) -> Array:
    """Parts side by side, each split into heads, as a view: (B, T, n_parts D) -> (n_parts, B, H, T, K)."""
    namespace(**{name: x})
    check_int("n_heads", n_heads, at_least=1)
    if x.ndim != 3 or x.shape[-1] % (n_parts * n_heads):
        width = "D" if n_parts == 1 else f"{n_parts}D"
        raise ValueError(f"{name} has shape {x.shape}, expected (B, T, {width}) with D divisible by {n_heads=}")
    B, T, width = x.shape
    return x.reshape(B, T, n_parts, n_heads, width // (n_parts * n_heads)).transpose(2, 0, 3, 1, 4)


def join_parts(*parts: Array) -> Array:
    """What ``split_parts`` has split, side by side again."""
    xp = namespace(part=parts[0])
    return xp.concatenate([merge_heads(part) for part in parts], axis=-1)
