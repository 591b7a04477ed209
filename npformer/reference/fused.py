"""Operations that are one pass over memory in a kernel, spelled out through the small ones."""

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
from npformer.reference.cross_entropy import cross_entropy
from npformer.reference.dropout import dropout, dropout_backward
from npformer.reference.embedding import embedding, embedding_backward
from npformer.reference.linear import linear, linear_backward
from npformer.reference.paired_cross_entropy import paired_cross_entropy

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
    """The gradients (dx, dweight, dbias): dh = dropout(dy) activation'(h), then as ``linear_backward``."""
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


def linear_cross_entropy(
    x: Array,
    weight: Array,
    bias: Array,
    targets: Array,
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    n_tokens: int | None = None,
) -> tuple[Array, Array]:
    """The loss of the logits x W + b: the end of the model, where a kernel turns logits into their gradient in place.

    Parameters
    ----------
    x : (..., D)
    weight : (D, V)
    bias : (V,)
    targets : (...) int
    ignore_id, label_smoothing, n_tokens
        As for ``cross_entropy``.

    Returns
    -------
    loss : scalar
    dlogits : (..., V)
        For ``linear_backward(dlogits, x, weight, bias)``.

    Examples
    --------
    >>> import numpy as np
    >>> loss, dlogits = linear_cross_entropy(np.ones((1, 1)), np.zeros((1, 4)), np.zeros(4), np.array([2]))
    >>> print(loss.round(4), dlogits)
    1.3863 [[ 0.25  0.25 -0.75  0.25]]
    """
    logits = linear(x, weight, bias)
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing, "n_tokens": n_tokens}
    return cross_entropy(logits, targets, **options)


def linear_paired_cross_entropy(
    x: Array,
    weight: Array,
    bias: Array,
    targets: Array,
    consistency: float,
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    n_tokens: int | None = None,
) -> tuple[Array, Array]:
    """The same for two predictions of each target, which shall agree.

    Parameters
    ----------
    x : (2, ..., D)
    weight : (D, V)
    bias : (V,)
    targets : (...) int
    consistency, ignore_id, label_smoothing, n_tokens
        As for ``paired_cross_entropy``.

    Returns
    -------
    loss : scalar
    dlogits : (2, ..., V)

    Examples
    --------
    >>> import numpy as np
    >>> x, weight, bias, targets = np.ones((2, 3, 1)), np.ones((1, 4)), np.zeros(4), np.array([2, 0, 1])
    >>> print(linear_paired_cross_entropy(x, weight, bias, targets, consistency=1.0)[0].round(4))
    1.3863
    """
    logits = linear(x, weight, bias)
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing, "n_tokens": n_tokens}
    return paired_cross_entropy(logits, targets, consistency, **options)


def check_activation(name):
    """The activation of this name and its backward."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation={name!r}, expected one of {sorted(ACTIVATIONS)}")
    return ACTIVATIONS[name]
