"""The mask that hides the future."""

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task


def causal_mask(T, S):
    query = np.arange(T)[:, None] + S - T
    key = np.arange(S)
    return key <= query


def cases(rng):
    T = int(rng.integers(2, 6))
    return [
        Case("three words", 3, 3),
        Case("a sentence", T, T),
        Case("one word", 1, 1),
        Case("two queries, the last of four positions", 2, 4),
        Case("earlier keys in a cache", T, T + int(rng.integers(1, 5))),
        Case("one query, which sees every key", 1, 5),
    ]


exercise = Task(
    answer=causal_mask,
    title="the mask that hides the future",
    page="attention/masks",
    task="""
        Make the boolean mask of a decoder: keep[t, s] is True if query t may attend to key s, that is, if the key is not
        later than the query.

        There are T queries and S >= T keys. The queries are the last T of the S positions, as in decoding, where the
        earlier keys come from a cache: query t stands at position t + S - T.""",
    arguments={"T": "int", "S": "int, at least T"},
    results={"keep": "(T, S) array of bool, True = may attend"},
    expected=reference.causal_mask,
    cases=cases,
    mistakes=(
        Mistake({"key <= query": "key < query"}, "a position may attend to itself: <=, not <"),
        Mistake(
            {"key <= query": "key > query"},
            "the mask is True where attention is forbidden; here True = may attend",
        ),
        Mistake(
            {"key <= query": "key >= query"},
            "the mask hides the past, not the future: keep[t, s] is transposed",
        ),
        Mistake({" + S - T": ""}, "query t is at position t + S - T, not at t"),
        Mistake(
            {"key <= query": "(key <= query).astype(float)"},
            "the mask has numbers: a boolean mask has True and False",
        ),
        Mistake(
            {"key <= query": "np.where(key <= query, 0.0, -np.inf)"},
            "this is the additive form of the mask, 0 and -inf; expected True and False",
        ),
    ),
    hints=(
        "np.arange(S) are the positions of the keys; what are those of the queries?",
        "A column of shape (T, 1) compared with a row of shape (S,) gives a (T, S) array.",
        "For T = S the mask is np.tril(np.ones((T, T), bool)).",
    ),
)
