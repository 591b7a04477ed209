"""Scaled dot-product attention."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw, sizes
from npformer.reference import softmax


def attention(q, k, v):
    K = q.shape[-1]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(K)
    weights = softmax(scores)
    return weights @ v, weights


def cases(rng):
    B, H, T, S, K, Kv = sizes(rng, 6, high=7)
    ones = np.ones((1, 3))
    return [
        Case("vectors of ones", 2 * ones, np.ones((2, 3)), np.array([[1.0], [1.0]])),
        Case("one query, two keys", np.array([[1.0, 0.0]]), np.eye(2), np.array([[10.0], [20.0]])),
        Case("one head", draw(rng, 3, 4), draw(rng, 5, 4), draw(rng, 5, 2)),
        Case("heads", draw(rng, H, T, K), draw(rng, H, S, K), draw(rng, H, S, Kv)),
        Case("as many queries as keys", *draw(rng, 3, 4, 4)),
        Case(
            "a batch of heads", draw(rng, B, H, T, K), draw(rng, B, H, S, K), draw(rng, B, H, S, Kv)
        ),
        Case("large scores", 100 * draw(rng, T, K), 100 * draw(rng, S, K), draw(rng, S, Kv)),
    ]


exercise = Task(
    answer=attention,
    title="scaled dot-product attention",
    page="attention/one-head",
    task="""
        Each query gets the average of the values, weighted by how well their keys match the query:

            scores  = q kᵀ / √K
            weights = softmax(scores), over the keys
            out     = weights v

        There may be any number of leading axes (batch, heads), the same for q, k and v. T queries, S keys.""",
    arguments={"q": "(..., T, K) array", "k": "(..., S, K) array", "v": "(..., S, Kv) array"},
    results={"out": "(..., T, Kv) array", "weights": "(..., T, S) array"},
    expected=reference.attention,
    cases=cases,
    mistakes=(
        Mistake({"softmax(scores)": "scores"}, explanations.NO_SOFTMAX),
        Mistake(
            {"weights @ v, weights": "weights, weights @ v"},
            "the results are exchanged: first out, then weights",
        ),
        Mistake({" / np.sqrt(K)": ""}, explanations.NOT_DIVIDED),
        Mistake({"/ np.sqrt(K)": "/ K"}, explanations.DIVIDED_BY_K),
        Mistake({"/ np.sqrt(K)": "* np.sqrt(K)"}, explanations.MULTIPLIED_BY_ROOT),
        Mistake(
            {"q.shape[-1]": "len(q)"},
            "the scores are divided by the root of len(q), which counts the first axis: K is the last one, q.shape[-1]",
        ),
        Mistake(
            {"q.shape[-1]": "k.shape[-2]"},
            "the scores are divided by √S: K is the last axis of q and k",
        ),
        Mistake(
            {"q.shape[-1]": "q.shape[-2]"},
            "the scores are divided by √T: K is the last axis of q and k",
        ),
        Mistake(
            {"softmax(scores)": "softmax(scores, axis=-2)"},
            "the softmax is taken over the queries, not the keys",
        ),
        Mistake(
            {"weights @ v, weights": "weights @ v, scores"},
            "the second result is the scores before the softmax, not the weights",
        ),
        Mistake(
            {"k.swapaxes(-1, -2)": "k.T"},
            "k.T reverses all axes, also those of batch and heads: swap the last two",
        ),
        Mistake(
            {"softmax(scores)": "scores / scores.sum(axis=-1, keepdims=True)"},
            "the exponential is missing",
        ),
    ),
    hints=(
        "q @ kᵀ has one row a query and one column a key; `@` multiplies the last two axes and keeps the others.",
        "k.swapaxes(-1, -2) transposes the last two axes, however many there are before them.",
        "`softmax` of npformer takes the last axis, which is the axis of the keys.",
    ),
    needs=("from npformer import softmax",),
)
