"""Softmax that does not overflow."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw, sizes


def softmax(x):
    peak = x.max(axis=-1, keepdims=True)
    e = np.exp(x - peak)
    return e / e.sum(axis=-1, keepdims=True)


def cases(rng):
    B, T, S = sizes(rng, 3, low=2)
    hidden = draw(rng, T, S) * 3
    hidden[:, 1:][rng.random((T, S - 1)) < 0.5] = -np.inf
    return [
        Case("one row", np.log([1.0, 3.0, 4.0])),
        Case("two rows", draw(rng, 2, 3)),
        Case("a batch", draw(rng, B, T, S)),
        Case("large scores", draw(rng, T, S) + 1000),
        Case("very negative scores", draw(rng, T, S) - 1000),
        Case("rows of different size", draw(rng, 3, 4) + np.array([[-2000.0], [0.0], [2000.0]])),
        Case("entries of -inf, which get the weight 0", hidden),
    ]


exercise = Task(
    answer=softmax,
    title="softmax of each row, without overflow",
    page="attention/soft-dictionary",
    task="""
        Turn each row of scores (the last axis) into weights that are positive and sum to 1:

            y_i = exp(x_i) / sum_j exp(x_j)

        x may have any number of leading axes. Scores of 1000 must not overflow: what does not change the quotient if
        it is subtracted from every entry of a row? Each row has at least one entry that is not -inf.""",
    arguments={"x": "(..., n) array"},
    results={"y": "(..., n) array, like x"},
    expected=reference.softmax,
    cases=cases,
    mistakes=(
        Mistake(
            {"axis=-1": "axis=1"}, "axis 1 is the last axis only if there are two axes: axis=-1"
        ),
        Mistake(
            {"e.sum(axis=-1, keepdims=True)": "e.sum()"},
            "the division is by one sum of all rows: each row has its own sum",
        ),
        Mistake(
            {"x - peak": "x"},
            "the maximum of the row is not subtracted: exp(1000) is inf, and inf / inf is NaN",
        ),
        Mistake(
            {"x.max(axis=-1, keepdims=True)": "x.max()"},
            "the maximum of the whole array is subtracted: in a row whose entries are all much smaller, every exp is 0",
        ),
        Mistake({"axis=-1": "axis=0"}, "the sum is taken over the first axis, not over the last"),
        Mistake({"axis=-1, keepdims=True": "keepdims=True"}, explanations.SUM_OF_ALL),
        Mistake(
            {"e.sum(axis=-1, keepdims=True)": "e.sum(axis=-1)"},
            "the maximum or the sum has lost its axis: keepdims=True keeps it",
        ),
        Mistake(
            {"return e / e.sum(axis=-1, keepdims=True)": "return e"},
            "the division by the sum is missing",
        ),
    ),
    hints=(
        "exp(x - c) / sum exp(x - c) is the same for each c, as exp(x - c) = exp(x) / exp(c).",
        "With c the largest entry of the row no exponent is positive, and at least one exp is 1.",
        "x.max(axis=-1, keepdims=True) has shape (..., 1), which broadcasts over the row.",
    ),
)
