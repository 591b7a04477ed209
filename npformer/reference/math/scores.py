"""Five attention scores, which say how well a key matches a query, and attention with any.

All scores have the same calling convention: ``score(q, k, *params)`` returns (..., T, S), a number
for each query and key, and ``score_backward(dscores, q, k, *params)`` the gradients of q, k and the
parameters. Masked entries have dscores of 0, and pass no gradient, even if they are NaN. A is the
width of the hidden layer of the additive score.
"""

from typing import Literal

import numpy as np

from npformer.arrays import Array, transpose
from npformer.errors import UserError
from npformer.operations.formula import backward_of, operation
from npformer.operations.shapes import check_arrays, match
from npformer.reference.math.linear import linear, rows
from npformer.reference.math.masks import masked
from npformer.reference.math.product import product
from npformer.reference.math.softmax import softmax, softmax_backward


@operation("q: ... T K>0, k: ... S K -> scores: ... T S", flops="2*N*T*S*K")
def dot_score(q: Array, k: Array) -> Array:
    """q kᵀ (Luong et al. 2015, "dot"): it grows with the lengths of query and key, and as their
    directions agree.

    >>> dot_score(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [-2.0, 1.0]]))
    array([[11.,  0.]])
    """
    return q @ transpose(k)


@backward_of(dot_score, flops="4*N*T*S*K")
def dot_score_backward(dscores: Array, q: Array, k: Array) -> tuple[Array, Array]:
    """dq = dscores k, dk = dscoresᵀ q.

    >>> q, k = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [-2.0, 1.0]])
    >>> dq, dk = dot_score_backward(np.array([[1.0, 10.0]]), q, k)
    >>> dq  # 1 · (3, 4) + 10 · (-2, 1)
    array([[-17.,  14.]])
    >>> dk
    array([[ 1.,  2.],
           [10., 20.]])
    """
    dq = product(dscores, k)
    dk = product(transpose(dscores), q)
    return dq, dk


@operation("q: ... T K>0, k: ... S K -> scores: ... T S", flops="2*N*T*S*K")
def scaled_dot_score(q: Array, k: Array) -> Array:
    """q kᵀ / √K (Vaswani et al. 2017, section 3.2.1): a dot product whose variance does not grow
    with the width.

    >>> scaled_dot_score(np.array([[1.0, 1.0, 1.0, 1.0]]), np.array([[1.0, 2.0, 3.0, 4.0]]))
    array([[5.]])
    """
    scale = q.shape[-1] ** -0.5
    return dot_score(q * scale, k)


@backward_of(scaled_dot_score, flops="4*N*T*S*K")
def scaled_dot_score_backward(dscores: Array, q: Array, k: Array) -> tuple[Array, Array]:
    """As for ``dot_score``, with both gradients multiplied by the scale.

    >>> q, k = np.array([[1.0, 1.0, 1.0, 1.0]]), np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> scaled_dot_score_backward(np.array([[2.0]]), q, k)  # the scale is 1/√4
    (array([[1., 2., 3., 4.]]), array([[1., 1., 1., 1.]]))
    """
    scale = q.shape[-1] ** -0.5
    return dot_score_backward(dscores * scale, q, k)


@operation("q: ... T K>0, k: ... S K -> scores: ... T S", flops="2*N*T*S*K")
def cosine_score(q: Array, k: Array) -> Array:
    """q kᵀ / (‖q‖ ‖k‖), the cosine of the angle between query and key: from -1 to 1, independent of
    their lengths.

    A vector of zeros has no direction: its cosines and its gradient are defined as 0.

    >>> k = np.array([[3.0, 4.0], [0.0, 5.0], [-1.0, 0.0], [0.0, 0.0]])
    >>> cosine_score(np.array([[2.0, 0.0]]), k)
    array([[ 0.6,  0. , -1. ,  0. ]])
    """
    q_direction, _ = direction(q)
    k_direction, _ = direction(k)
    return dot_score(q_direction, k_direction)


@backward_of(cosine_score, flops="4*N*T*S*K")
def cosine_score_backward(dscores: Array, q: Array, k: Array) -> tuple[Array, Array]:
    """The backward pass of the dot product of two directions, then that of each direction.

    >>> q, k = np.array([[2.0, 0.0]]), np.array([[3.0, 4.0]])  # their cosine is 0.6
    >>> dq, dk = cosine_score_backward(np.ones((1, 1)), q, k)
    >>> dq.round(6)  # ((0.6, 0.8) - 0.6 · (1, 0)) / 2: orthogonal to q
    array([[0. , 0.4]])
    >>> dk.round(6)  # ((1, 0) - 0.6 · (0.6, 0.8)) / 5: orthogonal to k
    array([[ 0.128, -0.096]])
    """
    q_direction, q_length = direction(q)
    k_direction, k_length = direction(k)
    dq_direction, dk_direction = dot_score_backward(dscores, q_direction, k_direction)
    dq = _direction_backward(dq_direction, q_direction, q_length)
    dk = _direction_backward(dk_direction, k_direction, k_length)
    return dq, dk


def direction(x):
    """(x / |x|, |x|) along the last axis; the direction of a zero vector is 0."""
    peak = np.maximum(x.real, -x.real).max(axis=-1, keepdims=True)
    peak = np.where(peak == 0, 1, peak)
    scaled = x / peak  # so that no square overflows or underflows
    norm = np.sqrt((scaled * scaled).sum(axis=-1, keepdims=True))
    y = scaled / np.where(norm.real == 0, 1, norm)
    length = peak * norm
    return y, length


def _direction_backward(dy, direction, length):
    """dx = (dy - y Σ dy y) / |x|, y = x / |x|: the component of dy along x has no effect."""
    along = (dy * direction).sum(axis=-1, keepdims=True)
    is_zero = length.real == 0
    dx = (dy - direction * along) / np.where(is_zero, 1, length)
    is_masked = (dy == 0).all(axis=-1, keepdims=True)  # such a row may be NaN
    return np.where(is_zero | is_masked, 0, dx)


@operation(
    "q: ... T Kq>0, k: ... S Kk>0, weight: Kq Kk -> scores: ... T S", flops="2*N*(T*Kq*Kk+T*S*Kk)"
)
def bilinear_score(q: Array, k: Array, weight: Array) -> Array:
    """q W kᵀ (Luong et al. 2015, "general"): a learned linear map to the space of the keys, then a
    dot product.

    >>> q, k = np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])
    >>> bilinear_score(q, k, weight=np.array([[10.0], [1.0]]))
    array([[36., 48.]])
    """
    bridged = linear(q, weight)
    return dot_score(bridged, k)


@backward_of(bilinear_score, flops="2*N*(3*T*Kq*Kk+2*T*S*Kk)")
def bilinear_score_backward(
    dscores: Array, q: Array, k: Array, weight: Array
) -> tuple[Array, Array, Array]:
    """The gradients (dq, dk, dweight) of a linear map followed by a dot product.

    >>> q, k, weight = np.array([[1.0, 2.0]]), np.array([[3.0]]), np.array([[10.0], [1.0]])
    >>> dq, dk, dweight = bilinear_score_backward(np.ones((1, 1)), q, k, weight)
    >>> dq, dk  # k Wᵀ and q W
    (array([[30.,  3.]]), array([[12.]]))
    >>> dweight  # qᵀ k
    array([[3.],
           [6.]])
    """
    bridged = linear(q, weight)
    dbridged, dk = dot_score_backward(dscores, bridged, k)
    dq, dweight = _linear_backward(dbridged, q, weight)
    return dq, dk, dweight


def _linear_backward(dy, x, weight):
    """(dx, dweight) of a linear map; masked rows have dy = 0 and add nothing to dweight, even if
    they are NaN.
    """
    dx = linear(dy, weight.T)
    dweight = product(rows(x).T, rows(dy))
    return dx, dweight


@operation(
    "q: ... T Kq>0, k: ... S Kk>0, w_q: Kq A, w_k: Kk A, w_score: A -> scores: ... T S",
    flops="2*N*A*(T*Kq+S*Kk+T*S)",
)
def additive_score(q: Array, k: Array, w_q: Array, w_k: Array, w_score: Array) -> Array:
    """tanh(q W_q + k W_k) · w (Bahdanau et al. 2015): a hidden layer computes the score from query
    and key.

    >>> q, k, one = np.array([[1.0]]), np.array([[-1.0], [1.0]]), np.array([[1.0]])
    >>> additive_score(q, k, w_q=one, w_k=one, w_score=np.array([10.0])).round(4)
    array([[0.    , 9.6403]])
    """
    hidden = _hidden(q, k, w_q, w_k)
    return hidden @ w_score


@backward_of(additive_score, flops="2*N*A*(3*T*Kq+3*S*Kk+3*T*S)")
def additive_score_backward(
    dscores: Array, q: Array, k: Array, w_q: Array, w_k: Array, w_score: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The gradients (dq, dk, dw_q, dw_k, dw_score).

    With h = tanh(q W_q + k W_k): dw_score = Σ dscores h, the gradient of q W_q is Σ_s dscores
    (1 - h²) w_score, and that of k W_k is the same sum over t. h and its derivative 1 - h², (...,
    T, S, A), are the largest arrays by far, so h is recomputed instead of stored. The sums over
    keys and over queries, weighted by dscores, are matrix products.

    >>> q, k, one = np.array([[2.0]]), np.array([[-2.0]]), np.array([[1.0]])
    >>> w_score = np.array([10.0])
    >>> additive_score_backward(one, q, k, one, one, w_score)  # h = tanh(2 - 2) = 0, of slope 1
    (array([[10.]]), array([[10.]]), array([[20.]]), array([[-20.]]), array([0.]))
    """
    hidden = _hidden(q, k, w_q, w_k)

    # scores = hidden · w_score
    dw_score = product(dscores.reshape(1, dscores.size), rows(hidden))[0]

    # hidden = tanh(q_part + k_part), and tanh' = 1 - tanh²: for each query, the sum over the keys
    slope = 1 - hidden * hidden
    dq_part = product(dscores[..., :, None, :], slope)[..., 0, :] * w_score

    # for each key, the sum over the queries
    dscores_of_keys = transpose(dscores)
    slope_of_keys = slope.swapaxes(-3, -2)
    dk_part = product(dscores_of_keys[..., :, None, :], slope_of_keys)[..., 0, :] * w_score

    # q_part = q w_q, and k_part = k w_k
    dq, dw_q = _linear_backward(dq_part, q, w_q)
    dk, dw_k = _linear_backward(dk_part, k, w_k)
    return dq, dk, dw_q, dw_k, dw_score


def _hidden(q, k, w_q, w_k):
    """tanh(q W_q + k W_k) for every pair of query and key, (..., T, S, A)."""
    q_part = linear(q, w_q)
    k_part = linear(k, w_k)
    return np.tanh(q_part[..., :, None, :] + k_part[..., None, :, :])


SCORES = {  # name: (score, its backward pass, the names of its parameters)
    "dot": (dot_score, dot_score_backward, ()),
    "scaled_dot": (scaled_dot_score, scaled_dot_score_backward, ()),
    "cosine": (cosine_score, cosine_score_backward, ()),
    "bilinear": (bilinear_score, bilinear_score_backward, ("weight",)),
    "additive": (additive_score, additive_score_backward, ("w_q", "w_k", "w_score")),
}


Score = Literal["dot", "scaled_dot", "cosine", "bilinear", "additive"]


def _check_params(*, score, params, q, k, **_):
    """Check that there are as many arrays as the score has parameters, and that they fit."""
    function, _, names = SCORES[score]
    n = len(names)
    if not isinstance(params, (tuple, list)):
        expected = f"a tuple of {n} arrays {names}"
        raise TypeError(f"params is a {type(params).__name__}, expected {expected}")
    if len(params) != n:
        expected = f"{n} with score={score!r}: {names}"
        raise UserError(f"params has {len(params)} arrays, expected {expected}")
    record = function.record
    arrays = dict(zip(record.parameters, (q, k, *params), strict=True))
    check_arrays(record.contract, arrays, record.parameters)
    match(record.contract, arrays)


@operation(
    "q: ... T Kq>0, k: ... S Kk>0, v: ... S Kv, keep_mask: ~ ... T S mask "
    "-> out: ... T Kv, weights: ... T S",
    check=_check_params,
)
def score_attention(
    q: Array,
    k: Array,
    v: Array,
    score: Score,
    params: tuple = (),
    keep_mask: Array | None = None,
    *,
    causal: bool = False,
) -> tuple[Array, Array]:
    """softmax(score(q, k)) v: attention with one of five scores; with "scaled_dot" it equals
    ``attention``.

    Parameters
    ----------
    k
        Its width may differ from that of q if the score is "bilinear" or "additive".
    params
        The arguments of the score after q and k: ``(weight,)`` for "bilinear",
        ``(w_q, w_k, w_score)`` for "additive", and ``()`` for the others.
    keep_mask, causal
        As for ``attention``: the output of a query that may attend to no key is exactly 0.

    >>> q, k = np.array([[1.0, 0.0]]), np.array([[9.0, 0.0], [0.0, 0.1]])
    >>> v = np.array([[1.0], [2.0]])
    >>> for score in ("dot", "cosine"):
    ...     print(score, score_attention(q, k, v, score)[1].round(3))
    dot [[1. 0.]]
    cosine [[0.731 0.269]]
    """
    score_of, _, _ = SCORES[score]
    scores = score_of(q, k, *params)
    weights = softmax(masked(scores, keep_mask, causal))
    out = product(weights, v)
    return out, weights


@backward_of(
    score_attention,
    "q: ... T Kq>0, k: ... S Kk>0, v: ... S Kv, weights: ... T S, dout: ... T Kv "
    "-> dq: ... T Kq, dk: ... S Kk, dv: ... S Kv, *",
    check=_check_params,
)
def score_attention_backward(
    dout: Array, q: Array, k: Array, v: Array, weights: Array, score: Score, params: tuple = ()
) -> tuple[Array, ...]:
    """The gradients (dq, dk, dv, and one for each of ``params``).

    The masks are not needed: a masked key has weight 0.

    >>> q, k = np.array([[1.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [np.nan, np.nan]])
    >>> v, keep_mask = np.array([[10.0], [20.0], [np.nan]]), np.array([True, True, False])
    >>> out, weights = score_attention(q, k, v, "dot", keep_mask=keep_mask)
    >>> out, weights
    (array([[15.]]), array([[0.5, 0.5, 0. ]]))
    >>> dq, dk, dv = score_attention_backward(np.ones((1, 1)), q, k, v, weights, "dot")
    >>> dk  # dscores = (-2.5, 2.5, 0)
    array([[-2.5, -2.5],
           [ 2.5,  2.5],
           [ 0. ,  0. ]])
    """
    # out = weights v
    dv = product(transpose(weights), dout)
    dweights = dout @ transpose(v)

    # weights = softmax(scores); a masked key has weight 0 and passes no gradient, even if it is NaN
    dscores = softmax_backward(np.where(weights == 0, 0, dweights), weights)

    # scores = score(q, k, *params)
    _, score_backward, _ = SCORES[score]
    dq, dk, *dparams = score_backward(dscores, q, k, *params)
    return dq, dk, dv, *dparams
