"""Find the bug: a softmax for three axes, without the maximum."""

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task, draw, sizes


def fix_softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


GIVEN = """
def fix_softmax(scores):
    exponentials = np.exp(scores)
    return exponentials / np.sum(exponentials, axis=2)[:, :, None]
"""


def cases(rng):
    B, H, T, S = sizes(rng, 4, low=2)
    return [
        Case("heads", draw(rng, H, T, S)),
        Case("one head", draw(rng, T, S)),
        Case("a batch of heads", draw(rng, B, H, T, S)),
        Case("large scores", 500 * draw(rng, H, T, S)),
        Case(
            "heads of different size",
            draw(rng, 2, 2, 3) + np.array([-2000.0, 2000.0])[:, None, None],
        ),
    ]


exercise = Task(
    answer=fix_softmax,
    title="find the bug: weights that are NaN",
    page="attention/soft-dictionary",
    task="""
        This softmax over the keys works for some scores, but two things are wrong with it. Mend it: it has to work with
        any number of leading axes, and with large scores.""",
    arguments={"scores": "(..., T, S) array"},
    results={"weights": "(..., T, S) array"},
    expected=reference.softmax,
    cases=cases,
    mistakes=(
        Mistake(
            {"scores - scores.max(axis=-1, keepdims=True)": "scores"},
            "large scores still overflow: subtract the maximum of each row",
        ),
        Mistake(
            {"e.sum(axis=-1, keepdims=True)": "np.sum(e, axis=2)[:, :, None]"},
            "axis=2 and [:, :, None] are the last axis only if there are three: axis=-1, keepdims=True",
        ),
        Mistake(
            {"scores.max(axis=-1, keepdims=True)": "scores.max()"},
            "one maximum for all rows: in a row whose scores are all much smaller, every exp is 0",
        ),
        Mistake(
            {"e.sum(axis=-1, keepdims=True)": "e.sum(axis=1, keepdims=True)"},
            "the sum is over the wrong axis: the keys are the last one",
        ),
    ),
    hints=(
        "What is exp(1000)? And what does it change if the same number is subtracted from a whole row?",
        "Call it with a single matrix (T, S): which axis is axis 2?",
    ),
    given=GIVEN,
)
