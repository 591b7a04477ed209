"""How well does a key match a query? Five answers, each with its backward, and attention with any of them.

All have one calling convention: ``score(q, k, *params)`` returns (..., T, S), a number for each query and key, and
``score_backward(dscores, q, k, *params)`` the gradients of these arguments. Where dscores is exactly 0, nothing
is passed on, even if the query or the key holds NaN. A is the width of the hidden layer of the additive score.
"""

from npformer.reference.activations import tanh
from npformer.reference.arrays import Array, namespace, narrow, quiet, transpose, widen
from npformer.reference.checks import check_mask_of_scores, check_shape
from npformer.reference.linear import linear, linear_backward, rows
from npformer.reference.masks import causal_mask
from npformer.reference.product import product
from npformer.reference.softmax import softmax, softmax_backward


@quiet
def dot_score(q: Array, k: Array) -> Array:
    """q kᵀ (Luong et al. 2015, "dot"): large where query and key point the same way, and larger if they are long.

    Parameters
    ----------
    q : (..., T, K)
    k : (..., S, K)

    Returns
    -------
    (..., T, S)

    Examples
    --------
    >>> import numpy as np
    >>> dot_score(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [-2.0, 1.0]]))
    array([[11.,  0.]])
    """
    namespace(q=q, k=k)
    check_same_width(q, k)
    return q @ transpose(k)


@quiet
def dot_score_backward(dscores: Array, q: Array, k: Array) -> tuple[Array, Array]:
    """dq = dscores k, dk = dscoresᵀ q."""
    namespace(dscores=dscores, q=q, k=k)
    check_same_width(q, k)
    _check_dscores(dscores, q, k)
    dq, dk = product(dscores, k), product(transpose(dscores), q)
    return narrow(dq, q), narrow(dk, k)


def scaled_dot_score(q: Array, k: Array) -> Array:
    """q kᵀ / √K (Vaswani et al. 2017, section 3.2.1): a dot product whose variance does not grow with the width.

    Parameters
    ----------
    q : (..., T, K)
    k : (..., S, K)

    Returns
    -------
    (..., T, S)

    Examples
    --------
    >>> import numpy as np
    >>> scaled_dot_score(np.array([[1.0, 1.0, 1.0, 1.0]]), np.array([[1.0, 2.0, 3.0, 4.0]]))
    array([[5.]])
    """
    namespace(q=q, k=k)
    check_same_width(q, k)
    return narrow(dot_score(widen(q) * q.shape[-1] ** -0.5, k), q)


def scaled_dot_score_backward(dscores: Array, q: Array, k: Array) -> tuple[Array, Array]:
    """As for ``dot_score``, and the scale belongs to both gradients."""
    namespace(dscores=dscores, q=q, k=k)
    check_same_width(q, k)
    _check_dscores(dscores, q, k)
    return dot_score_backward(widen(dscores) * q.shape[-1] ** -0.5, q, k)


def cosine_score(q: Array, k: Array) -> Array:
    """q kᵀ / (|q| |k|), the cosine of the angle between query and key: from -1 to 1, whatever their lengths.

    A vector of zeros has no direction: its cosines are defined as 0, and it gets no gradient.

    Parameters
    ----------
    q : (..., T, K)
    k : (..., S, K)

    Returns
    -------
    (..., T, S)

    Examples
    --------
    >>> import numpy as np
    >>> cosine_score(np.array([[2.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 5.0], [-1.0, 0.0], [0.0, 0.0]]))
    array([[ 0.6,  0. , -1. ,  0. ]])
    """
    namespace(q=q, k=k)
    check_same_width(q, k)
    return narrow(dot_score(_direction(widen(q))[0], _direction(widen(k))[0]), q)


def cosine_score_backward(dscores: Array, q: Array, k: Array) -> tuple[Array, Array]:
    """The dot product of two directions, and then each direction's own backward."""
    namespace(dscores=dscores, q=q, k=k)
    check_same_width(q, k)
    _check_dscores(dscores, q, k)
    q_direction, q_length = _direction(widen(q))
    k_direction, k_length = _direction(widen(k))
    dq_direction, dk_direction = dot_score_backward(dscores, q_direction, k_direction)
    dq = _direction_backward(dq_direction, q_direction, q_length)
    dk = _direction_backward(dk_direction, k_direction, k_length)
    return narrow(dq, q), narrow(dk, k)


@quiet
def _direction(x):
    """(x / |x|, |x|) along the last axis; the direction of a zero vector is zero."""
    xp = namespace(x=x)
    peak = xp.maximum(x.real, -x.real).max(axis=-1, keepdims=True)
    peak = xp.where(peak == 0, 1, peak)
    scaled = x / peak  # so that no square overflows or vanishes
    norm = xp.sqrt((scaled * scaled).sum(axis=-1, keepdims=True))
    is_zero = norm.real == 0
    return xp.where(is_zero, 0, scaled / xp.where(is_zero, 1, norm)), peak * norm


@quiet
def _direction_backward(dy, direction, length):
    """dx = (dy - y Σ dy y) / |x|: what points along x would only make it longer, and has no effect."""
    xp = namespace(dy=dy)
    is_zero = length.real == 0
    dx = (dy - direction * (dy * direction).sum(axis=-1, keepdims=True)) / xp.where(is_zero, 1, length)
    return xp.where(is_zero | (dy == 0).all(axis=-1, keepdims=True), 0, dx)


@quiet
def bilinear_score(q: Array, k: Array, weight: Array) -> Array:
    """q W kᵀ (Luong et al. 2015, "general"): a linear bridge from the queries' space to the keys', which is learned.

    Parameters
    ----------
    q : (..., T, Kq)
    k : (..., S, Kk)
    weight : (Kq, Kk)

    Returns
    -------
    (..., T, S)

    Examples
    --------
    >>> import numpy as np
    >>> bilinear_score(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), weight=np.array([[10.0], [1.0]]))
    array([[36., 48.]])
    """
    namespace(q=q, k=k, weight=weight)
    _check_bilinear(q, k, weight)
    bridged = linear(widen(q), weight)
    return narrow(dot_score(bridged, k), q)


@quiet
def bilinear_score_backward(dscores: Array, q: Array, k: Array, weight: Array) -> tuple[Array, Array, Array]:
    """A linear map and a dot product, backwards: (dq, dk, dweight)."""
    namespace(dscores=dscores, q=q, k=k, weight=weight)
    _check_bilinear(q, k, weight)
    _check_dscores(dscores, q, k)
    bridged = linear(widen(q), weight)
    dbridged, dk = dot_score_backward(widen(dscores), bridged, k)
    dq, dweight, _ = linear_backward(dbridged, q, weight)
    return narrow(dq, q), dk, narrow(dweight, weight)


@quiet
def additive_score(q: Array, k: Array, w_q: Array, w_k: Array, w_score: Array) -> Array:
    """tanh(q W_q + k W_k) · w (Bahdanau et al. 2015): a hidden layer looks at both, and learns what a match is.

    Parameters
    ----------
    q : (..., T, Kq)
    k : (..., S, Kk)
    w_q : (Kq, A)
    w_k : (Kk, A)
    w_score : (A,)

    Returns
    -------
    (..., T, S)

    Examples
    --------
    >>> import numpy as np
    >>> q, k, one = np.array([[1.0]]), np.array([[-1.0], [1.0]]), np.array([[1.0]])
    >>> additive_score(q, k, w_q=one, w_k=one, w_score=np.array([10.0])).round(4)
    array([[0.    , 9.6403]])
    """
    namespace(q=q, k=k, w_q=w_q, w_k=w_k, w_score=w_score)
    _check_additive(q, k, w_q, w_k, w_score)
    return narrow(_hidden(q, k, w_q, w_k) @ w_score, q)


@quiet
def additive_score_backward(
    dscores: Array, q: Array, k: Array, w_q: Array, w_k: Array, w_score: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """(dq, dk, dw_q, dw_k, dw_score).

    With h = tanh(q W_q + k W_k): dw_score = Σ dscores h, and q W_q gets Σ_s dscores (1 - h²) w_score, k W_k the same
    sum over t. h and its slope 1 - h², (..., T, S, A), are the largest arrays by far. h is computed again, not kept.
    What is needed of them are sums over keys and over queries, weighted with dscores: matrix products.
    """
    namespace(dscores=dscores, q=q, k=k, w_q=w_q, w_k=w_k, w_score=w_score)
    _check_additive(q, k, w_q, w_k, w_score)
    _check_dscores(dscores, q, k)
    hidden = _hidden(q, k, w_q, w_k)

    # scores = hidden · w_score
    dw_score = product(dscores.reshape(1, dscores.size), rows(hidden))[0]

    # hidden = tanh(q w_q + k w_k), and tanh' = 1 - tanh²: a sum over keys for each query, over queries for each key
    slope = 1 - hidden * hidden
    dq_part = product(dscores[..., :, None, :], slope)[..., 0, :] * w_score
    dk_part = product(transpose(dscores)[..., :, None, :], slope.swapaxes(-3, -2))[..., 0, :] * w_score
    dq, dw_q, _ = linear_backward(dq_part, q, w_q)
    dk, dw_k, _ = linear_backward(dk_part, k, w_k)
    return narrow(dq, q), narrow(dk, k), narrow(dw_q, w_q), narrow(dw_k, w_k), narrow(dw_score, w_score)


def _hidden(q, k, w_q, w_k):
    """tanh(q W_q + k W_k) of every query with every key, (..., T, S, A)."""
    q_part, k_part = linear(widen(q), w_q), linear(widen(k), w_k)
    return tanh(q_part[..., :, None, :] + k_part[..., None, :, :])


SCORES = {  # the score, its backward, the names of its parameters
    "dot": (dot_score, dot_score_backward, ()),
    "scaled_dot": (scaled_dot_score, scaled_dot_score_backward, ()),
    "cosine": (cosine_score, cosine_score_backward, ()),
    "bilinear": (bilinear_score, bilinear_score_backward, ("weight",)),
    "additive": (additive_score, additive_score_backward, ("w_q", "w_k", "w_score")),
}


@quiet
def score_attention(
    q: Array,
    k: Array,
    v: Array,
    score: str,
    params: tuple = (),
    keep_mask: Array | None = None,
    *,
    causal: bool = False,
) -> tuple[Array, Array]:
    """softmax(score(q, k)) v: attention with a score of your choice; with "scaled_dot" it is ``attention``.

    Parameters
    ----------
    q : (..., T, K)
    k : (..., S, K)
        Or of another width than q, if the score is "bilinear" or "additive".
    v : (..., S, Kv)
    score : "dot", "scaled_dot", "cosine", "bilinear" or "additive"
    params : tuple of arrays
        What the score takes after q and k: ``(weight,)`` of "bilinear", ``(w_q, w_k, w_score)`` of "additive".
    keep_mask, causal
        As for ``attention``: a query that may attend to nothing gets exact zeros.

    Returns
    -------
    out : (..., T, Kv)
    weights : (..., T, S)

    Examples
    --------
    >>> import numpy as np
    >>> q, k, v = np.array([[1.0, 0.0]]), np.array([[9.0, 0.0], [0.0, 0.1]]), np.array([[1.0], [2.0]])
    >>> for score in ("dot", "cosine"):
    ...     print(score, score_attention(q, k, v, score)[1].round(3))
    dot [[1. 0.]]
    cosine [[0.731 0.269]]
    """
    forward, _, named_params = check_score(score, params)
    xp = namespace(q=q, k=k, v=v, **named_params)
    _check_values(q, k, v)

    scores = forward(widen(q), widen(k), *map(widen, params))
    if keep_mask is not None:
        check_mask_of_scores(keep_mask, scores.shape)
        scores = xp.where(keep_mask, scores, -xp.inf)
    if causal:
        scores = xp.where(xp.asarray(causal_mask(*scores.shape[-2:])), scores, -xp.inf)
    weights = narrow(softmax(scores), q)
    return product(weights, v), weights


@quiet
def score_attention_backward(
    dout: Array, q: Array, k: Array, v: Array, weights: Array, score: str, params: tuple = ()
) -> tuple[Array, ...]:
    """The gradients (dq, dk, dv, and one for each of params).

    The masks need not be told: what is masked has weight 0.
    """
    _, backward, named_params = check_score(score, params)
    xp = namespace(dout=dout, q=q, k=k, v=v, weights=weights, **named_params)
    _check_values(q, k, v)
    check_shape(dout=(dout, (*q.shape[:-1], v.shape[-1])), weights=(weights, (*q.shape[:-1], k.shape[-2])))

    # out = weights v
    dv = product(transpose(weights), dout)
    dweights = widen(dout) @ transpose(v)

    # weights = softmax(scores); a weight of 0 passes no gradient, nor does a query without one: there may be NaN
    dweights = xp.where(weights == 0, 0, dweights)
    dscores = softmax_backward(dweights, weights)
    dscores = xp.where((dout != 0).any(axis=-1, keepdims=True), dscores, 0)

    # scores = score(q, k, *params)
    dq, dk, *dparams = backward(dscores, q, k, *params)
    return dq, dk, dv, *dparams


def check_score(score, params):
    """The score of this name, its backward, and its parameters by their names."""
    if not isinstance(score, str):
        raise TypeError(f"score is a {type(score).__name__}, expected one of {sorted(SCORES)}")
    if score not in SCORES:
        raise ValueError(f"score={score!r}, expected one of {sorted(SCORES)}")
    forward, backward, names = SCORES[score]
    if not isinstance(params, (tuple, list)):
        raise TypeError(f"params is a {type(params).__name__}, expected a tuple of {len(names)} arrays {names}")
    if len(params) != len(names):
        raise ValueError(f"params has {len(params)} arrays, expected {len(names)} with score={score!r}: {names}")
    return forward, backward, dict(zip(names, params, strict=True))


def _are_stacks(q, k):
    """Whether these are matrices of rows of at least one entry, or equally many such matrices."""
    return min(q.ndim, k.ndim) >= 2 and q.shape[:-2] == k.shape[:-2] and min(q.shape[-1], k.shape[-1]) >= 1


def check_same_width(q, k):
    """Queries (..., T, K) and keys (..., S, K)."""
    if not _are_stacks(q, k) or q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q {q.shape}, k {k.shape}: expected q (..., T, K), k (..., S, K) with K >= 1 and equal axes before T and S"
        )


def _check_bilinear(q, k, weight):
    if not _are_stacks(q, k) or weight.shape != (q.shape[-1], k.shape[-1]):
        raise ValueError(
            f"q {q.shape}, k {k.shape}, weight {weight.shape}: expected q (..., T, Kq), k (..., S, Kk), "
            "weight (Kq, Kk) with equal axes before T and S"
        )


def _check_additive(q, k, w_q, w_k, w_score):
    A = w_score.shape
    weights_fit = w_score.ndim == 1 and (w_q.shape, w_k.shape) == ((*q.shape[-1:], *A), (*k.shape[-1:], *A))
    if not _are_stacks(q, k) or not weights_fit:
        raise ValueError(
            f"q {q.shape}, k {k.shape}, w_q {w_q.shape}, w_k {w_k.shape}, w_score {w_score.shape}: expected "
            "q (..., T, Kq), k (..., S, Kk), w_q (Kq, A), w_k (Kk, A), w_score (A,) with equal axes before T and S"
        )


def _check_dscores(dscores, q, k):
    check_shape(dscores=(dscores, (*q.shape[:-1], k.shape[-2])))


def _check_values(q, k, v):
    if not _are_stacks(q, k) or v.ndim < 2 or v.shape[:-1] != k.shape[:-1]:
        raise ValueError(
            f"q {q.shape}, k {k.shape}, v {v.shape}: expected q (..., T, K), k (..., S, K), v (..., S, Kv) "
            "with equal axes before T and S"
        )
