"""Operations that are one pass over memory in a kernel, spelled out through the small ones."""

from collections.abc import Sequence

from npformer.reference.activations import (
    gelu,
    gelu_backward,
    relu,
    relu_backward,
    silu,
    silu_backward,
)
from npformer.reference.arrays import Array, namespace
from npformer.reference.checks import check_ids, check_shape
from npformer.reference.dropout import dropout, dropout_backward
from npformer.reference.embedding import embedding, embedding_backward
from npformer.reference.heads import merge_heads, split_heads
from npformer.reference.linear import linear, linear_backward

ACTIVATIONS = {
    "relu": (relu, relu_backward),
    "gelu": (gelu, gelu_backward),
    "silu": (silu, silu_backward),
}


def embed_tokens(
    ids: Array, table: Array, positions: Array, pad_id: int, rate: float = 0.0, key: int | None = None
) -> Array:
    """dropout(√D · table[id] + position), and exact zeros where the id is padding (section 3.4).

    Padding is stopped here, at the door: whatever its row of the table holds, the model never sees it.

    Parameters
    ----------
    ids : (B, T) int
    table : (V, D)
    positions : (T, D)
    pad_id : int
    rate, key
        Dropout.

    Returns
    -------
    (B, T, D)

    Examples
    --------
    >>> import numpy as np
    >>> table, positions = np.array([[np.nan], [2.0], [3.0]]), np.array([[0.1], [0.2], [0.3]])
    >>> embed_tokens(np.array([[2, 1, 0]]), table, positions, pad_id=0)[..., 0]
    array([[3.1, 2.2, 0. ]])
    """
    xp = namespace(table=table, positions=positions)
    x = embedding(ids, table) * table.shape[1] ** 0.5
    check_shape(positions=(positions, x.shape[-2:]))
    y = xp.where((ids == pad_id)[..., None], 0, x + positions.astype(x.dtype, copy=False))
    return dropout(y, rate, key)


def embed_tokens_backward(
    dy: Array, ids: Array, table_shape: tuple[int, int], pad_id: int, rate: float = 0.0, key: int | None = None
) -> Array:
    """dtable; the row of the padding is 0."""
    xp = namespace(dy=dy)
    check_ids(ids, table_shape[0], "ids")
    check_shape(dy=(dy, (*ids.shape, table_shape[1])))
    dx = xp.where((ids == pad_id)[..., None], 0, dropout_backward(dy, rate, key))
    return embedding_backward(dx * table_shape[1] ** 0.5, ids, table_shape)


def project_heads(x: Array, weight: Array, bias: Array, n_heads: int, n_parts: int) -> Array:
    """Several projections at once, split into heads: ``q, k, v = project_heads(x, weight, bias, n_heads, 3)``.

    Parameters
    ----------
    x : (B, T, D_in)
    weight : (D_in, n_parts D)
        The matrices of the parts side by side.
    bias : (n_parts D,)
    n_heads, n_parts : int

    Returns
    -------
    (n_parts, B, H, T, K)

    Examples
    --------
    >>> import numpy as np
    >>> q, k, v = project_heads(np.ones((1, 10, 512)), np.ones((512, 3 * 512)), np.ones(3 * 512), 8, 3)
    >>> q.shape
    (1, 8, 10, 64)
    """
    namespace(x=x, weight=weight, bias=bias)
    if x.ndim != 3:
        raise ValueError(f"x has shape {x.shape}, expected (B, T, D_in)")
    if min(n_parts, n_heads) < 1 or weight.shape[-1] % (n_parts * n_heads):
        raise ValueError(f"weight {weight.shape}: the columns do not split into {n_parts=} times {n_heads=} heads")
    B, T, _ = x.shape
    heads = split_heads(linear(x, weight, bias), n_parts * n_heads)
    return heads.reshape(B, n_parts, n_heads, T, heads.shape[-1]).swapaxes(0, 1)


def project_heads_backward(dparts: Sequence[Array], x: Array, weight: Array, bias: Array) -> tuple[Array, Array, Array]:
    """The gradients (dx, dweight, dbias), from that of each part (B, H, T, K)."""
    xp = namespace(x=x)
    dy = xp.concatenate([merge_heads(dpart) for dpart in dparts], axis=-1)
    return linear_backward(dy, x, weight, bias)


def linear_activation_dropout(
    x: Array, weight: Array, bias: Array, activation: str, rate: float = 0.0, key: int | None = None
) -> tuple[Array, Array]:
    """dropout(activation(x W + b)): the first half of the feed-forward layer.

    Parameters
    ----------
    x : (..., D)
    weight : (D, F)
    bias : (F,)
    activation : "relu", "gelu" or "silu"
    rate, key
        Dropout.

    Returns
    -------
    y : (..., F)
    h : (..., F)
        x W + b, for the backward pass.

    Examples
    --------
    >>> import numpy as np
    >>> linear_activation_dropout(np.array([1.0]), np.array([[3.0, -3.0]]), np.zeros(2), "relu")[0]
    array([3., 0.])
    """
    activate, _ = check_activation(activation)
    h = linear(x, weight, bias)
    return dropout(activate(h), rate, key), h


def linear_activation_dropout_backward(
    dy: Array,
    x: Array,
    weight: Array,
    bias: Array,
    h: Array,
    activation: str,
    rate: float = 0.0,
    key: int | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients (dx, dweight, dbias)."""
    _, activate_backward = check_activation(activation)
    namespace(dy=dy, h=h)
    check_shape(dy=(dy, h.shape))
    dh = activate_backward(dropout_backward(dy, rate, key), h)
    return linear_backward(dh, x, weight, bias)


def linear_dropout_residual(
    x: Array, weight: Array, bias: Array, residual: Array | None, rate: float = 0.0, key: int | None = None
) -> Array:
    """residual + dropout(x W + b): the end of every sublayer.

    Parameters
    ----------
    x : (..., D_in)
    weight : (D_in, D)
    bias : (D,)
    residual : (..., D), or None for no residual connection
    rate, key
        Dropout.

    Returns
    -------
    (..., D)

    Examples
    --------
    >>> import numpy as np
    >>> linear_dropout_residual(np.array([1.0]), np.array([[2.0]]), np.array([0.5]), np.array([10.0]))
    array([12.5])
    """
    y = dropout(linear(x, weight, bias), rate, key)
    if residual is None:
        return y
    namespace(x=x, residual=residual)
    check_shape(residual=(residual, y.shape))
    return residual + y


def linear_dropout_residual_backward(
    dy: Array, x: Array, weight: Array, bias: Array, rate: float = 0.0, key: int | None = None
) -> tuple[Array, Array, Array, Array]:
    """The gradients (dx, dweight, dbias, dresidual); the residual path passes dy as it is."""
    dx, dweight, dbias = linear_backward(dropout_backward(dy, rate, key), x, weight, bias)
    return dx, dweight, dbias, dy


def check_activation(name):
    """The activation of this name and its backward."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation={name!r}, expected one of {sorted(ACTIVATIONS)}")
    return ACTIVATIONS[name]
