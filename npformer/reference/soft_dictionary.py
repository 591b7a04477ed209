"""Attention is a dictionary that can learn: start reading here.

A dictionary compares the query with each key and returns the value of the key that is the same:

>>> {"apple": 9.0, "plum": 2.0, "pear": 3.0}["plum"]
2.0

"Is the same" is a number, 1 or 0, and the answer a sum over all keys:

    Σ_s is_same(query, key_s) · value_s  /  Σ_s is_same(query, key_s)

Nothing can be learned through it. As a function of the query, is_same is flat with one jump: its derivative is 0, or
undefined. A query that misses its key is never told which way to go. Replace "is the same" by "how similar", a number
that changes smoothly, and the answer becomes a mean of all values, weighted by similarity, with a useful derivative.
That mean is ``soft_lookup``; only the similarity is left to choose:

- Let queries and keys be vectors, and similarity the cosine of the angle between them, from -1 to 1.
- The weights of a mean must not be negative; exp makes any number positive. So take exp(cosine), ``exp_cosine``.

Numbers after exp, divided by their sum, are a softmax: this lookup is softmax(cosine) v, and that is attention.
``scores.py`` puts other scores in the place of the cosine; ``attention.py`` is the one a Transformer uses.
"""

from collections.abc import Callable

import numpy as np

from npformer.arrays import Array, transpose
from npformer.operation import backward_of, operation
from npformer.reference.product import product
from npformer.reference.scores import cosine_score, cosine_score_backward


@operation("q: ... T K>0, k: ... S K -> scores: ... T S")
def is_same(q: Array, k: Array) -> Array:
    """1 where query and key agree in every entry, else 0; there is no backward, since no gradient passes a step.

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
    >>> keys, values = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([[9.0], [2.0], [3.0]])
    >>> soft_lookup(np.array([[0.0, 1.0]]), keys, values, is_same)
    array([[2.]])
    >>> soft_lookup(np.array([[0.1, 1.0]]), keys, values, is_same)  # almost is not the same
    array([[0.]])
    """
    same = (q[..., :, None, :] == k[..., None, :, :]).all(axis=-1)
    return same.astype(np.result_type(q, k))


@operation("q: ... T K>0, k: ... S K -> y: ... T S")
def exp_cosine(q: Array, k: Array) -> Array:
    """exp(cosine of the angle between query and key): from e where they point the same way to 1/e.

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
    >>> exp_cosine(np.array([[2.0, 0.0]]), np.array([[5.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])).round(3)
    array([[2.718, 1.   , 0.368]])
    """
    return np.exp(cosine_score(q, k))


@backward_of(exp_cosine)
def exp_cosine_backward(dy: Array, q: Array, k: Array) -> tuple[Array, Array]:
    """exp is its own derivative; the rest is the cosine's."""
    return cosine_score_backward(dy * exp_cosine(q, k), q, k)


@operation("query: ... T K>0, keys: ... S K, values: ... S Kv -> out: ... T Kv")
def soft_lookup(query: Array, keys: Array, values: Array, similarity: Callable) -> Array:
    """Σ similarity · value / Σ similarity, sums over the keys: the mean of the values, weighted by similarity.

    Parameters
    ----------
    query : (..., T, K)
    keys : (..., S, K)
    values : (..., S, Kv)
    similarity : callable
        ``similarity(query, keys)``, (..., T, S), not negative. A query that is similar to no key at all gets zeros.

    Returns
    -------
    (..., T, Kv)

    Examples
    --------
    Keys with similarities 0.1, 0.9 and 0.7 to the query, whose values are 9, 2 and 3:

    >>> import numpy as np
    >>> query, keys, values = np.ones((1, 2)), np.ones((3, 2)), np.array([[9.0], [2.0], [3.0]])
    >>> soft_lookup(query, keys, values, lambda query, keys: np.array([[0.1, 0.9, 0.7]])).round(3)
    array([[2.824]])

    With exp(cosine) as the similarity it is attention:

    >>> from npformer.reference import score_attention
    >>> query, keys = np.array([[0.1, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> soft_lookup(query, keys, values, exp_cosine).round(4)
    array([[3.6562]])
    >>> score_attention(query, keys, values, "cosine")[0].round(4)
    array([[3.6562]])
    """
    weights, _ = shares(query, keys, similarity(query, keys))
    return product(weights, values)


@backward_of(soft_lookup)
def soft_lookup_backward(
    dout: Array, query: Array, keys: Array, values: Array, similarity: Callable, similarity_backward: Callable
) -> tuple[Array, Array, Array]:
    """(dquery, dkeys, dvalues); the similarity brings its own backward, (dy, query, keys) → (dquery, dkeys).

    The gradient of a similarity says how much better than the mean its value is: dout · (value - out) / Σ similarity.
    """
    weights, total = shares(query, keys, similarity(query, keys))
    out = product(weights, values)
    dvalues = product(transpose(weights), dout)
    dsimilarities = (dout @ transpose(values) - (dout * out).sum(axis=-1, keepdims=True)) / total
    return *similarity_backward(dsimilarities, query, keys), dvalues


@operation("query: ... T K, keys: ... S K, similarities: ... T S -> weights: ... T S, total: ... T 1")
def shares(query: Array, keys: Array, similarities: Array) -> tuple[Array, Array]:
    """The similarities of these queries and keys divided by their sum, and the sum."""
    total = similarities.sum(axis=-1, keepdims=True)
    total = np.where(total.real == 0, np.inf, total)  # nothing is similar: weights and gradients are 0
    return similarities / total, total
