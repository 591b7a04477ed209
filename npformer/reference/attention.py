"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1)."""

from npformer.reference.arrays import Array, namespace, narrow, quiet, transpose, widen
from npformer.reference.checks import check_attention, check_shape
from npformer.reference.dropout import dropout, dropout_backward
from npformer.reference.masks import causal_mask
from npformer.reference.product import product
from npformer.reference.softmax import softmax, softmax_backward


@quiet
def attention(
    q: Array,
    k: Array,
    v: Array,
    keep_mask: Array | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    key: int | None = None,
) -> tuple[Array, Array]:
    """softmax(q kᵀ / √K) v: each query gets the mean of the values, weighted by how well their keys match.

    Parameters
    ----------
    q : (..., T, K)
    k : (..., S, K)
    v : (..., S, Kv)
    keep_mask : bool, broadcasts to (..., T, S)
        True = may attend. A query that may attend to nothing gets exact zeros.
    causal : bool
        Query t sees the keys s <= t + (S - T) only.
    scale : float
        1/√K if not given: the dot product of K independent components of variance 1 has variance K.
    dropout_rate, key : float, int
        Dropout on the weights. One key always drops the same entries: give it to the backward pass too.

    Returns
    -------
    out : (..., T, Kv)
    weights : (..., T, S)
        The probabilities, before dropout.

    Examples
    --------
    >>> import numpy as np
    >>> q, k, v = np.array([[9.0, 0]]), np.array([[9.0, 0], [0, 9.0]]), np.array([[1.0], [2.0]])
    >>> attention(q, k, v)[0]
    array([[1.]])
    """
    xp = namespace(q=q, k=k, v=v)
    check_attention(q, k, v, keep_mask, dropout_rate, key)
    T, S = q.shape[-2], k.shape[-2]

    scores = (widen(q) * default_scale(q, scale)) @ transpose(k)
    if keep_mask is not None:
        scores = xp.where(keep_mask, scores, -xp.inf)
    if causal:
        scores = xp.where(xp.asarray(causal_mask(T, S)), scores, -xp.inf)
    weights = narrow(softmax(scores), q)
    dropped = dropout(weights, dropout_rate, key)
    out = product(dropped, v)  # dropped @ v, in which a weight of 0 hides even a NaN
    return out, weights


@quiet
def attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    weights: Array,
    *,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    key: int | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients (dq, dk, dv), given the scale, dropout_rate and key of the forward pass.

    With P the weights and d( ) their dropout: dv = d(P)ᵀ dout, dP = d(dout vᵀ), dscores = P (dP - Σ_s dP P),
    dq = scale dscores k and dk = scale dscoresᵀ q. The masks need not be told: what is masked has weight 0.
    """
    xp = namespace(dout=dout, q=q, k=k, v=v, weights=weights)
    check_attention(q, k, v, None, dropout_rate, key)
    check_shape(dout=(dout, (*q.shape[:-1], v.shape[-1])), weights=(weights, (*q.shape[:-1], k.shape[-2])))

    # out = dropped v
    dropped = dropout(weights, dropout_rate, key)
    dv = product(transpose(dropped), dout)
    dweights = dropout_backward(widen(dout) @ transpose(v), dropout_rate, key)

    # weights = softmax(scores); a weight of 0 passes no gradient, nor does a query without one: there may be NaN
    dweights = xp.where(weights == 0, 0, dweights)
    dscores = softmax_backward(dweights, weights)
    dscores = xp.where((dout != 0).any(axis=-1, keepdims=True), dscores, 0)

    # scores = scale q kᵀ
    scale = default_scale(q, scale)
    dq = product(dscores, k) * scale
    dk = product(transpose(dscores), q) * scale
    return narrow(dq, q), narrow(dk, k), dv


def default_scale(q: Array, scale: float | None) -> float:
    """``scale``, or 1/√K."""
    return q.shape[-1] ** -0.5 if scale is None else float(scale)
