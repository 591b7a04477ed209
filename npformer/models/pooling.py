"""One vector for each sequence, of those of its positions, and maps of that vector."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from npformer.arrays import kept, underflow_is_zero
from npformer.errors import UserError
from npformer.operations.options import check_fields
from npformer.reference.math.scores import direction

POOLINGS = ("mean", "first", "max", "last", "mean_sqrt_length", "weighted_mean", "none")
EPS = 1e-5  # of a normalisation: PyTorch's default


@dataclass(frozen=True)
class VectorMap:
    """A map of the vector of a sequence, after the pooling; see ``Encoder``.

    Parameters
    ----------
    kind : "linear", "layer_norm" or "unit"
        A linear map and an activation, a normalisation with a gain and a bias, or division by the
        length.
    width : int, optional
        Number of outputs of a linear map.
    bias : bool
        Whether a linear map has a bias.
    activation : "identity", "tanh", "relu", "gelu_erf" or "silu"
        That of a linear map.

    Examples
    --------
    >>> VectorMap("linear", width=5, activation="tanh")
    VectorMap(kind='linear', width=5, bias=True, activation='tanh')
    """

    kind: Literal["linear", "layer_norm", "unit"]
    width: int | None = None
    bias: bool = True
    activation: Literal["identity", "tanh", "relu", "gelu_erf", "silu"] = "identity"

    def __post_init__(self):
        check_fields(self)
        if (self.width is not None) != (self.kind == "linear"):
            setting = f"width={self.width} with kind={self.kind!r}"
            raise UserError(f"{setting}, expected one of 'linear' alone")


def n_poolings(pooling):
    """How many poolings give a vector of each sequence: one, or those of a tuple."""
    return len(pooling) if isinstance(pooling, tuple) else 1


def new_maps(new, width, maps):
    """The parameters of maps of a vector of this width, by the numbers of those that have some."""
    params = {}
    for number, each in enumerate(maps):
        if each.kind == "linear":
            params[str(number)] = new.linear(width, each.width, bias=each.bias)
            width = each.width
        elif each.kind == "layer_norm":
            params[str(number)] = new.norm(width)
    return params


def mapped(ops, params, maps, x):
    """The vectors (B, D) after all maps; ``params`` are those of ``new_maps``."""
    for number, each in enumerate(maps):
        own = params.get(str(number), {})
        if each.kind == "unit":
            x = direction(x)[0]
        elif each.kind == "layer_norm":
            x = ops.layer_norm(x, own["gain"], own["bias"], eps=EPS)[0]
        else:
            x = ops.linear(x, own["weight"], own.get("bias"))
            if each.activation != "identity":
                x = getattr(ops, each.activation)(x)
    return x


@underflow_is_zero()
def pooled(x, keep_mask, pooling):
    """The vector of each sequence, of its positions that are kept: (B, T, D) -> (B, D), and a
    backward pass.

    ``keep_mask`` (B, T) is None if all positions are kept. "none" changes nothing. Of several
    poolings, a tuple, the vectors lie side by side, (B, n D), and there is no backward pass. Rows
    of which nothing is kept get zeros.

    >>> x = np.array([[[1.0], [3.0], [np.nan]]])
    >>> y, backward = pooled(x, np.array([[True, True, False]]), "mean")
    >>> y, backward(np.array([[1.0]]))[..., 0]
    (array([[2.]]), array([[0.5, 0.5, 0. ]]))
    >>> pooled(x, np.array([[True, True, False]]), ("last", "weighted_mean"))[0]
    array([[3.        , 2.33333333]])
    """
    if isinstance(pooling, tuple):
        return np.concatenate([pooled(x, keep_mask, each)[0] for each in pooling], axis=-1), None
    if pooling == "none":
        return x, lambda dy: dy
    mask = np.ones_like(x[..., :1], dtype=bool) if keep_mask is None else keep_mask[..., None]
    if pooling in ("first", "last", "max"):
        positions = np.arange(x.shape[1], like=x)[:, None]
        chosen = mask & (positions == _position_of(pooling, mask, x)[:, None])
        weights = None
        factor = 1
    else:
        chosen = mask
        weights, factor = _weights_of(pooling, mask, x.real.dtype)
    parts = kept(chosen, x)
    if weights is not None:
        parts = parts * weights
    y = parts.sum(axis=1) * factor

    @underflow_is_zero()
    def backward(dy):
        dparts = np.broadcast_to((dy * factor)[:, None], x.shape)
        if weights is not None:
            dparts = dparts * weights
        return kept(chosen, dparts)

    return y, backward


def _position_of(pooling, mask, x):
    """The position whose vector is that of a row, (B, 1), or that of each of its entries, (B, D).

    Padding may also be at the beginning of a row.
    """
    if pooling == "first":
        return mask.argmax(axis=1)
    if pooling == "last":
        from_the_end = mask[:, ::-1].argmax(axis=1)
        return x.shape[1] - 1 - from_the_end
    return np.where(mask, x.real, -np.inf).argmax(axis=1)


def _weights_of(pooling, mask, dtype):
    """The weights of the positions in a mean, None if all have the same, and one over their sum."""
    weights = None
    counted = mask
    if pooling == "weighted_mean":  # 1, 2, …, from the first position that is kept
        positions = np.arange(mask.shape[1], like=mask)[:, None]
        first = mask.argmax(axis=1)[:, None]
        weights = (positions + 1 - first).astype(dtype)
        counted = kept(mask, weights)
    total = np.maximum(counted.sum(axis=1), 1).astype(dtype)
    if pooling == "mean_sqrt_length":
        total = np.sqrt(total)
    return weights, 1 / total
