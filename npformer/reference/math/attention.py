"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1).

There are T queries and S keys of width K, and a value of width Kv for each key; the result has T
rows of width Kv. Before these two axes may stand any number of others, such as batch and heads, the
same in all three arrays. Mask and bias broadcast to the scores, (..., T, S).
"""

import numpy as np

from npformer.arrays import Array, transpose
from npformer.operations.formula import backward_of, operation
from npformer.operations.settings import AttentionOptions
from npformer.reference.math.dropout import dropout, dropout_backward
from npformer.reference.math.masks import masked
from npformer.reference.math.product import product
from npformer.reference.math.softmax import softmax, softmax_backward


def scores_of(q, k, keep_mask=None, *, bias=None, causal=False, scale=None, softcap=None):
    """How well each query matches each key: q kᵀ / √K + bias, and -inf where the query may not
    attend to the key.

    >>> scores_of(np.array([[2.0], [3.0]]), np.array([[5.0], [7.0]]), causal=True)
    array([[ 10., -inf],
           [ 15.,  21.]])
    """
    # q is scaled, not the scores: it has K numbers for each query in place of S.
    scores = (q * scale_of(q.shape[-1], scale)) @ transpose(k)
    if softcap is not None:
        scores = capped(scores, softcap)
    if bias is not None:
        scores = scores + bias
    return masked(scores, keep_mask, causal)


@operation(
    "q: ... T K>0, k: ... S K, v: ... S Kv, keep_mask: ~ ... T S mask, bias: ~ ... T S "
    "-> out: ... T Kv, weights: ... T S",
    flops="2*N*T*S*(K+Kv)",
    options=AttentionOptions,
)
def attention(
    q: Array,
    k: Array,
    v: Array,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    softcap: float | None = None,
    dropout_key: int | None = None,
) -> tuple[Array, Array]:
    """softmax(q kᵀ / √K + bias) v: each query gets the mean of the values, weighted by how well
    their keys match.

    Parameters
    ----------
    keep_mask
        True = may attend. The output of a query that may attend to no key is exactly 0.
    bias
        Is added to the scores, as for relative positions (Shaw et al. 2018) or ALiBi (Press et al.
        2022).
    causal
        Query t attends only to the keys s <= t + (S - T).
    scale
        1/√K if not given: the dot product of K independent components of variance 1 has variance K.
    dropout_rate, dropout_key
        Dropout on the weights. The same key always drops the same entries: pass it to the backward
        pass too.
    softcap
        softcap · tanh(score / softcap) takes the place of each score, before the bias is added
        (Gemma 2).

    Returns
    -------
    weights
        The probabilities, before dropout.

    >>> q, k, v = np.array([[9.0, 0]]), np.array([[9.0, 0], [0, 9.0]]), np.array([[1.0], [2.0]])
    >>> attention(q, k, v)[0]
    array([[1.]])
    """
    scores = scores_of(q, k, keep_mask, bias=bias, causal=causal, scale=scale, softcap=softcap)
    weights = softmax(scores)
    dropped = dropout(weights, dropout_rate, dropout_key)
    out = product(dropped, v)  # product takes 0 · NaN as 0: a masked value may be NaN
    return out, weights


@backward_of(attention, flops="4*N*T*S*(K+Kv)")
def attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    weights: Array,
    *,
    bias: Array | None = None,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    softcap: float | None = None,
    dropout_key: int | None = None,
) -> tuple[Array, ...]:
    """The gradients (dq, dk, dv), and dbias if there is a bias; with the forward pass's options.

    With P the weights: dv = drop(P)ᵀ dout, dP = drop(dout vᵀ), dscores = P (dP - Σ_s dP P),
    dq = scale dscores k and dk = scale dscoresᵀ q; dbias is dscores, added up where the bias was
    broadcast. With a softcap, the dscores of dq and dk have the factor 1 - tanh²(score / softcap).
    The masks are not needed: a masked key has weight 0.

    >>> q, k = np.array([[1.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> v = np.array([[10.0], [20.0]])
    >>> out, weights = attention(q, k, v, scale=1.0)  # equal scores: P = (1/2, 1/2), out = 15
    >>> dq, dk, dv = attention_backward(np.ones((1, 1)), q, k, v, weights, scale=1.0)
    >>> dq, dv.ravel()  # dscores = (10 - 15, 20 - 15) / 2, and dv = P
    (array([[-2.5,  2.5]]), array([0.5, 0.5]))
    >>> dk
    array([[-2.5, -2.5],
           [ 2.5,  2.5]])
    """
    # out = dropped v
    dropped = dropout(weights, dropout_rate, dropout_key)
    dv = product(transpose(dropped), dout)
    # May be NaN at masked keys, so it is no ``product``: the softmax step sets these entries to 0.
    ddropped = dout @ transpose(v)

    # dropped = dropout(weights)
    dweights = dropout_backward(ddropped, dropout_rate, dropout_key)

    # weights = softmax(scores); a masked key has weight 0 and passes no gradient, even if it is NaN
    dscores = softmax_backward(np.where(weights == 0, 0, dweights), weights)

    # scores = capped(scale q kᵀ) + bias; without a bias there is one gradient less
    dbias = () if bias is None else (summed_to(dscores, bias.shape),)
    if softcap is not None:
        dscores = capped_backward(dscores, scores_of(q, k, scale=scale), softcap)
    scale = scale_of(q.shape[-1], scale)  # a number, where None was given, too
    dq = product(dscores, k) * scale
    dk = product(transpose(dscores), q) * scale
    return dq, dk, dv, *dbias


def scale_of(K, scale):
    """``scale``, or 1/√K if it is None."""
    return K**-0.5 if scale is None else float(scale)


def capped(scores, softcap):
    """softcap · tanh(score / softcap): small scores hardly change, and none leaves the range
    ±softcap.

    >>> capped(np.array([0.1, 10.0, 1000.0]), softcap=50.0).round(2)
    array([ 0.1 ,  9.87, 50.  ])
    """
    return softcap * np.tanh(scores / softcap)


def capped_backward(dy, scores, softcap):
    """dscores = dy (1 - tanh²(score / softcap)); masked keys, which may be NaN, have dy = 0.

    >>> capped_backward(np.ones(3), np.array([0.1, 10.0, 1000.0]), softcap=50.0).round(2)
    array([1.  , 0.96, 0.  ])
    """
    slope = 1 - np.tanh(scores / softcap) ** 2
    return np.where(dy == 0, 0, dy * slope)


def summed_to(dx, shape):
    """The gradient of an array of this shape that was broadcast to the shape of ``dx``.

    >>> summed_to(np.ones((2, 3, 5)), (3, 1)).ravel()
    array([10., 10., 10.])
    """
    dx = dx.sum(axis=tuple(range(dx.ndim - len(shape))))
    return dx.sum(axis=tuple(i for i, size in enumerate(shape) if size == 1), keepdims=True)
