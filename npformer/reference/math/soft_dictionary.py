"""Attention as a differentiable dictionary: start reading here.

A dictionary compares the query with each key and returns the value of the key that equals the
query:

>>> {"apple": 9.0, "plum": 2.0, "pear": 3.0}["plum"]
2.0

If ``is_same`` is 1 where the two are equal and 0 otherwise, the result is a sum over all keys:

    Σ_s is_same(query, key_s) · value_s  /  Σ_s is_same(query, key_s)

Gradient descent cannot learn through this lookup. As a function of the query, ``is_same`` is
constant except for one jump: its derivative is 0 or undefined, so a query that matches no key gets
no gradient towards one. If ``is_same`` is replaced by a similarity, a number that changes smoothly,
the result becomes a mean of all values, weighted by similarity, and its derivative is useful. That
mean is ``soft_lookup``. It remains to choose the similarity:

- Let queries and keys be vectors, and the similarity the cosine of the angle between them, from -1
  to 1.
- The weights of a mean must not be negative, and exp makes any number positive. So take
  exp(cosine), ``exp_cosine``.

Exponentials divided by their sum are a softmax: this lookup is softmax(cosine) v, which is
attention. ``scores.py`` replaces the cosine by other scores; ``attention.py`` has the attention
that a Transformer uses.
"""

from collections.abc import Callable

import numpy as np

from npformer.arrays import Array, library_of, transpose
from npformer.checks import check_shape
from npformer.operations.formula import backward_of, operation
from npformer.reference.math.product import product
from npformer.reference.math.scores import cosine_score, cosine_score_backward


@operation("q: ... T K>0, k: ... S K -> scores: ... T S")
def is_same(q: Array, k: Array) -> Array:
    """1 where query and key are equal in every entry, else 0; it has no backward pass, as its
    derivative is 0.

    >>> keys = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> values = np.array([[9.0], [2.0], [3.0]])
    >>> soft_lookup(np.array([[0.0, 1.0]]), keys, values, is_same)
    array([[2.]])
    >>> soft_lookup(np.array([[0.1, 1.0]]), keys, values, is_same)  # the query equals no key
    array([[0.]])
    """
    pairs = q[..., :, None, :] == k[..., None, :, :]
    same = pairs.all(axis=-1)
    return same.astype(np.result_type(q, k))


@operation("q: ... T K>0, k: ... S K -> y: ... T S")
def exp_cosine(q: Array, k: Array) -> Array:
    """exp(cosine of the angle between query and key): e if they have the same direction, 1/e if
    opposite directions.

    >>> exp_cosine(np.array([[2.0, 0.0]]), np.array([[5.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])).round(3)
    array([[2.718, 1.   , 0.368]])
    """
    return np.exp(cosine_score(q, k))


@backward_of(exp_cosine)
def exp_cosine_backward(dy: Array, q: Array, k: Array) -> tuple[Array, Array]:
    """dy exp(cosine) is the gradient of the cosine, since exp is its own derivative; then
    ``cosine_score_backward``.

    >>> q, k = np.array([[2.0, 0.0]]), np.array([[3.0, 4.0]])
    >>> y = exp_cosine(q, k)
    >>> dq, dk = exp_cosine_backward(1 / y, q, k)  # 1 / y: that of log y, the cosine
    >>> dq.round(6), cosine_score_backward(np.ones((1, 1)), q, k)[0].round(6)
    (array([[0. , 0.4]]), array([[0. , 0.4]]))
    """
    dcosine = dy * exp_cosine(q, k)
    return cosine_score_backward(dcosine, q, k)


@operation("query: ... T K>0, keys: ... S K, values: ... S Kv -> out: ... T Kv")
def soft_lookup(query: Array, keys: Array, values: Array, similarity: Callable) -> Array:
    """Σ similarity · value / Σ similarity, summed over the keys: the mean of the values, weighted
    by similarity.

    Parameters
    ----------
    similarity
        ``similarity(query, keys)`` returns (..., T, S), not negative. If all similarities of a
        query are 0, so is its output.

    Examples
    --------
    Three keys with similarities 0.1, 0.9 and 0.7 to the query, and with values 9, 2 and 3:

    >>> query, keys, values = np.ones((1, 2)), np.ones((3, 2)), np.array([[9.0], [2.0], [3.0]])
    >>> soft_lookup(query, keys, values, lambda query, keys: np.array([[0.1, 0.9, 0.7]])).round(3)
    array([[2.824]])

    With exp(cosine) as the similarity, the lookup is attention:

    >>> from npformer.reference import score_attention
    >>> query, keys = np.array([[0.1, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> soft_lookup(query, keys, values, exp_cosine).round(4)
    array([[3.6562]])
    >>> score_attention(query, keys, values, "cosine")[0].round(4)
    array([[3.6562]])
    """
    weights, _ = shares(query, keys, similarity)
    return product(weights, values)


@backward_of(soft_lookup)
def soft_lookup_backward(
    dout: Array,
    query: Array,
    keys: Array,
    values: Array,
    similarity: Callable,
    similarity_backward: Callable,
) -> tuple[Array, Array, Array]:
    """The gradients (dquery, dkeys, dvalues).

    ``similarity_backward(dy, query, keys)`` is the backward pass of the similarity and returns
    (dquery, dkeys). The gradient of a similarity is dout · (value - out) / Σ similarity.

    >>> query, keys = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, -1.0]])
    >>> values = np.array([[10.0], [20.0]])
    >>> functions = exp_cosine, exp_cosine_backward  # both similarities are exp(0) = 1: out = 15
    >>> dout = np.ones((1, 1))
    >>> dquery, dkeys, dvalues = soft_lookup_backward(dout, query, keys, values, *functions)
    >>> dvalues  # the weights
    array([[0.5],
           [0.5]])
    >>> dquery  # dsimilarities are (10 - 15)/2 and (20 - 15)/2: move towards the second key
    array([[ 0., -5.]])
    """
    weights, total = shares(query, keys, similarity)
    out = product(weights, values)
    dvalues = product(transpose(weights), dout)
    dweights = dout @ transpose(values)
    mean = (dout * out).sum(axis=-1, keepdims=True)  # of dweights, weighted
    dsimilarities = (dweights - mean) / total
    dquery, dkeys = similarity_backward(dsimilarities, query, keys)
    return dquery, dkeys, dvalues


def shares(query, keys, similarity):
    """The similarities (..., T, S) divided by their sum over the keys, and this sum."""
    similarities = similarity(query, keys)
    library_of(similarities, "similarities")  # raises if it is no array
    expected = (*query.shape[:-1], keys.shape[-2])
    check_shape(similarities=(similarities, expected))
    total = similarities.sum(axis=-1, keepdims=True)
    # If all similarities are 0, weights and gradients are 0.
    total = np.where(total.real == 0, np.inf, total)
    return similarities / total, total
