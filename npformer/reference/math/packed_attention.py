"""Multi-head attention of the result of one matrix product, in which q, k, v and all heads are side by side."""

import numpy as np

from npformer.arrays import Array
from npformer.operations.record import backward_of, operation
from npformer.reference.math.flash_attention import flash_attention, flash_attention_backward
from npformer.reference.math.heads import merge_heads


@operation(
    "qkv: B T 3*H*K>0, n_heads = H, keep_mask: ~ B H T T mask -> out: B T H*K, logsumexp: B H T wide",
    flops="4*B*H*T*T*K",
)
def self_attention(
    qkv: Array,
    n_heads: int,
    keep_mask: Array | None = None,
    *,
    causal: bool = False,
    dropout_rate: float = 0.0,
    dropout_key: int | None = None,
) -> tuple[Array, Array]:
    """Multi-head self-attention, with queries, keys and values side by side in one array (section 3.2.2).

    Parameters
    ----------
    qkv : (B, T, 3D)
        Queries, keys and values: one projection of one input.
    n_heads : int
    keep_mask : bool, broadcasts to (B, H, T, T), optional
    causal, dropout_rate, dropout_key
        As for ``attention``.

    Returns
    -------
    out : (B, T, D)
        The outputs of all heads, side by side.
    logsumexp : (B, H, T)
        For the backward pass, as in ``flash_attention``.

    Examples
    --------
    >>> import numpy as np
    >>> out, logsumexp = self_attention(np.ones((1, 10, 3 * 512)), n_heads=8)
    >>> out.shape, logsumexp.shape
    ((1, 10, 512), (1, 8, 10))
    """
    q, k, v = split_parts(qkv, n_heads, 3)
    options = {"causal": causal, "dropout_rate": dropout_rate, "dropout_key": dropout_key}
    heads, logsumexp = flash_attention(q, k, v, keep_mask, **options)
    return merge_heads(heads), logsumexp


@backward_of(self_attention, flops="10*B*H*T*T*K")
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
    dropout_key: int | None = None,
) -> Array:
    """dqkv; the options must be those of the forward pass.

    Examples
    --------
    >>> import numpy as np
    >>> qkv = np.array([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])
    >>> out, logsumexp = self_attention(qkv, n_heads=1, causal=True)
    >>> dout = np.array([[[1.0], [0.0]]])  # only of position 0, which attends only to itself: out[0] = v[0]
    >>> self_attention_backward(dout, qkv, out, logsumexp, n_heads=1, causal=True)
    array([[[0., 0., 1.],
            [0., 0., 0.]]])
    """
    q, k, v = split_parts(qkv, n_heads, 3)
    (dheads,), (heads,) = split_parts(dout, n_heads, 1), split_parts(out, n_heads, 1)
    options = {"causal": causal, "dropout_rate": dropout_rate, "dropout_key": dropout_key}
    dq, dk, dv = flash_attention_backward(dheads, q, k, v, heads, logsumexp, keep_mask, **options)
    return join_parts(dq, dk, dv)


@operation(
    "q: B T H*K>0, kv: B S 2*H*K, n_heads = H, keep_mask: ~ B H T S mask -> out: B T H*K, logsumexp: B H T wide",
    flops="4*B*H*T*S*K",
)
def cross_attention(
    q: Array,
    kv: Array,
    n_heads: int,
    keep_mask: Array | None = None,
    *,
    causal: bool = False,
    dropout_rate: float = 0.0,
    dropout_key: int | None = None,
) -> tuple[Array, Array]:
    """Multi-head attention to another sequence, whose keys and values are side by side, as of a decoder to the source.

    Parameters
    ----------
    q : (B, T, D)
    kv : (B, S, 2D)
    n_heads : int
    keep_mask : bool, broadcasts to (B, H, T, S), optional
    causal, dropout_rate, dropout_key
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
    (q,), (k, v) = split_parts(q, n_heads, 1), split_parts(kv, n_heads, 2)
    options = {"causal": causal, "dropout_rate": dropout_rate, "dropout_key": dropout_key}
    heads, logsumexp = flash_attention(q, k, v, keep_mask, **options)
    return merge_heads(heads), logsumexp


@backward_of(cross_attention, flops="10*B*H*T*S*K")
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
    dropout_key: int | None = None,
) -> tuple[Array, Array]:
    """The gradients (dq, dkv); the options must be those of the forward pass.

    Examples
    --------
    >>> import numpy as np
    >>> q, kv = np.array([[[1.0, 0.0]]]), np.array([[[2.0, 1.0, 10.0, 10.0], [2.0, -1.0, 20.0, 20.0]]])
    >>> out, logsumexp = cross_attention(q, kv, n_heads=2)  # in both heads, equal scores: out = 15
    >>> dq, dkv = cross_attention_backward(np.ones((1, 1, 2)), q, kv, out, logsumexp, n_heads=2)
    >>> dq.round(6)  # in both heads, dscores = (10 - 15, 20 - 15) / 2
    array([[[ 0., -5.]]])
    >>> dkv.round(6)
    array([[[-2.5,  0. ,  0.5,  0.5],
            [ 2.5,  0. ,  0.5,  0.5]]])
    """
    (q,), (k, v) = split_parts(q, n_heads, 1), split_parts(kv, n_heads, 2)
    (dheads,), (heads,) = split_parts(dout, n_heads, 1), split_parts(out, n_heads, 1)
    options = {"causal": causal, "dropout_rate": dropout_rate, "dropout_key": dropout_key}
    dq, dk, dv = flash_attention_backward(dheads, q, k, v, heads, logsumexp, keep_mask, **options)
    return join_parts(dq), join_parts(dk, dv)


def split_parts(x: Array, n_heads: int, n_parts: int) -> Array:
    """Split x into parts, and each part into heads, as a view: (B, T, n_parts D) -> (n_parts, B, H, T, K)."""
    B, T, width = x.shape
    return x.reshape(B, T, n_parts, n_heads, width // (n_parts * n_heads)).transpose(2, 0, 3, 1, 4)


def join_parts(*parts: Array) -> Array:
    """The inverse of ``split_parts``: merge the heads of each part, and concatenate the parts."""
    return np.concatenate([merge_heads(part) for part in parts], axis=-1)
