"""Find the bug: zero times infinity."""

import numpy as np

from npformer.exercises.exercise import Case, Mistake, Task, draw


def fix_additive_mask(scores, keep):
    return scores + np.where(keep, 0.0, -np.inf)


GIVEN = """
def fix_additive_mask(scores, keep):
    mask = (1.0 - keep) * -np.inf
    scores += mask
    return scores
"""


def expected(scores, keep):
    return np.where(keep, scores, -np.inf)


def cases(rng):
    T, S = (int(n) for n in rng.integers(1, 6, size=2))
    worked = np.array([[55.0, 100.0, 145.0], [100.0, 190.0, 280.0], [145.0, 280.0, 415.0]])
    return [
        Case("a hidden key", np.array([[1.0, 2.0]]), np.array([[True, False]])),
        Case("the future hidden", worked, np.tril(np.ones((3, 3), bool))),
        Case("heads, one mask for all", draw(rng, 2, T, S), rng.random((T, S)) < 0.5),
    ]


exercise = Task(
    answer=fix_additive_mask,
    title="find the bug: a mask that turns every score into NaN",
    page="attention/more-masks",
    task="""
        Add the additive form of a boolean mask to the scores: 0 where a key may be attended to, -inf where it may not. Two
        things are wrong.""",
    arguments={"scores": "(..., T, S) array", "keep": "(T, S) array of bool, True = may attend"},
    results={"masked": "(..., T, S) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake({"0.0, -np.inf": "0.0, -1e9"}, "-1e9 is not -inf: the task asks for -inf"),
        Mistake(
            {"np.where(keep, 0.0, -np.inf)": "(1.0 - keep) * -np.inf"},
            "0 · inf is NaN: choose between 0 and -inf with np.where instead of multiplying",
        ),
        Mistake(
            {
                "return scores + np.where(keep, 0.0, -np.inf)": "scores += np.where(keep, 0.0, -np.inf)\n    return scores"
            },
            "scores += … changes the array of the caller: return scores + …",
        ),
        Mistake(
            {"0.0, -np.inf": "-np.inf, 0.0"},
            "the mask has the wrong polarity: -inf belongs where keep is False",
        ),
        Mistake({"scores + ": ""}, "this is the mask alone: the scores have to be added"),
    ),
    hints=(
        "What is 0 times infinity?",
        "After the call, are the scores of the caller the same as before?",
    ),
    given=GIVEN,
)
