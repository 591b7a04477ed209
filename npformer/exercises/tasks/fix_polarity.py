"""Find the bug: a mask of the wrong polarity."""

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task, draw
from npformer.reference import softmax


def fix_polarity(scores, ids, pad_id):
    keep = (ids != pad_id)[:, None, :]
    return softmax(np.where(keep, scores, -np.inf))


GIVEN = """
def fix_polarity(scores, ids, pad_id):
    keep = (ids != pad_id)[:, :, None]
    return softmax(np.where(keep, -1e9, scores))
"""


def expected(scores, ids, pad_id):
    return reference.softmax(np.where(reference.padding_mask(ids, pad_id)[:, 0], scores, -np.inf))


def cases(rng):
    B, T = (int(n) for n in rng.integers(2, 5, size=2))
    ids = rng.integers(0, 3, size=(B, T))
    ids[:, 0] = 1
    return [
        Case("one sentence", draw(rng, 1, 2, 2), np.array([[5, 0]]), 0),
        Case("two sentences", draw(rng, 2, 3, 3), np.array([[5, 6, 0], [7, 0, 0]]), 0),
        Case("another padding", draw(rng, B, T, T), ids, 2),
        Case("very negative scores", draw(rng, 1, 3, 3) - 1e10, np.array([[5, 6, 0]]), 0),
    ]


exercise = Task(
    answer=fix_polarity,
    title="find the bug: a model that attends to the padding alone",
    page="attention/more-masks",
    task="""
        Self-attention of a batch of sentences: the weights of the keys that are padding should be exactly 0, for every
        query. keep is True where a key may be attended to. Three things are wrong.""",
    arguments={"scores": "(B, T, T) array", "ids": "(B, T) array of int", "pad_id": "int"},
    results={"weights": "(B, T, T) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"keep, scores, -np.inf": "keep, -np.inf, scores"},
            "where keep is True the score is hidden, and the padding is kept: the mask has the wrong polarity",
        ),
        Mistake(
            {"keep, scores, -np.inf": "keep, -1e9, scores"},
            "where keep is True the score is replaced: the mask has the wrong polarity",
        ),
        Mistake(
            {"[:, None, :]": "[:, :, None]"},
            "the mask hides queries that are padding, not keys: the last axis is that of the keys",
        ),
        Mistake(
            {"-np.inf": "-1e9"},
            "-1e9 is not -inf: next to more negative scores the padding gets all the weight",
        ),
    ),
    hints=(
        "np.where(condition, a, b) takes a where the condition is True.",
        "Which axis of the scores (B, T, T) is that of the keys?",
        "What happens to scores below -1e9?",
    ),
    given=GIVEN,
    needs=("from npformer import softmax",),
)
