"""Attention with a mask."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw, sizes


def masked_attention(q, k, v, keep):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(keep, scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(peak == -np.inf, 0, peak))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v


def cases(rng):
    B, H, T, S, K, Kv = sizes(rng, 6, low=2, high=7)
    q, k, v = draw(rng, T, K), draw(rng, S, K), draw(rng, S, Kv)
    heads = [draw(rng, B, H, n, width) for n, width in ((T, K), (S, K), (S, Kv))]
    mixed = rng.random((T, S)) < 0.6
    mixed[:, 0] = True
    one_is_blind = mixed.copy()
    one_is_blind[0] = False
    padding = np.arange(S) < rng.integers(1, S + 1, size=(B, 1, 1, 1))
    one_query = np.array([[1.0, 0.0]])
    two_values = np.array([[10.0], [20.0]])
    negative = np.full((2, 1), -1e3)
    positive = np.full((3, 1), 1e3)
    return [
        Case("nothing hidden", q, k, v, np.ones((T, S), bool)),
        Case("one key hidden", one_query, np.eye(2), two_values, np.array([[True, False]])),
        Case("the future hidden", *draw(rng, 3, 4, 2), np.tril(np.ones((4, 4), bool))),
        Case("a random mask", q, k, v, mixed),
        Case("padding hidden in a batch of heads", *heads, padding),
        Case("large scores", 100 * q, 100 * k, v, mixed),
        Case("very negative scores", negative, positive, draw(rng, 3, 1), np.eye(2, 3) == 1),
        Case("a query that may attend to no key", q, k, v, one_is_blind),
    ]


exercise = Task(
    answer=masked_attention,
    title="attention with a mask",
    page="attention/masks",
    task="""
        Attention in which a query attends only to the keys where the mask is True. A hidden key has weight exactly 0, as
        if it were not there. The output of a query that may attend to no key is exactly 0, not NaN.

            out = softmax(q kᵀ / √K, over the keys that are kept) v""",
    arguments={
        "q": "(..., T, K) array",
        "k": "(..., S, K) array",
        "v": "(..., S, Kv) array",
        "keep": "array of bool that broadcasts to (..., T, S), True = may attend",
    },
    results={"out": "(..., T, Kv) array"},
    expected=lambda q, k, v, keep: reference.attention(q, k, v, keep)[0],
    cases=cases,
    mistakes=(
        Mistake(
            {
                "keep, scores, -np.inf": "keep, -np.inf, scores",
                "np.where(total == 0, 1, total)": "total",
                "np.where(peak == -np.inf, 0, peak)": "peak",
            },
            "the mask is the wrong way round: True means that the key may be attended to",
        ),
        Mistake(
            {"keep, scores, -np.inf": "keep, -np.inf, scores"},
            "True means that the key may be attended to, not hidden",
        ),
        Mistake(
            {"keep, scores, -np.inf": "keep, scores, 0"},
            "a score of 0 is no score that is hidden: exp(0) = 1 gets a weight; set it to -inf",
        ),
        Mistake(
            {"keep, scores, -np.inf": "keep, scores, -1e9"},
            "-1e9 is not -inf: where no key, or one with a more negative score, is kept, hidden keys get a weight",
        ),
        Mistake(
            {
                "np.where(total == 0, 1, total)": "total",
                "np.where(peak == -np.inf, 0, peak)": "peak",
            },
            "where every score is -inf, the quotient is NaN: treat a query without any key separately",
        ),
        Mistake({" / np.sqrt(q.shape[-1])": ""}, explanations.NOT_DIVIDED),
        Mistake(
            {
                "    scores = np.where(keep, scores, -np.inf)\n": "",
                "e / np.where": "np.where(keep, e, 0) / np.where",
            },
            "the mask comes after the softmax: the weights that are left do not sum to 1; mask the scores",
        ),
    ),
    hints=(
        "exp(-inf) is 0: set the hidden scores to -inf before the softmax, with np.where.",
        "-inf - (-inf) is NaN: if the maximum of a row is -inf, subtract 0 instead.",
        "If the sum of a row is 0, divide by 1 instead: 0 / 1 is the 0 that is wanted.",
    ),
)
