"""The mask of what is not padding."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task


def padding_mask(ids, pad_id):
    return (ids != pad_id)[:, None, None, :]


def cases(rng):
    B, S = (int(n) for n in rng.integers(2, 7, size=2))
    return [
        Case("one sentence", np.array([[5, 3, 0]]), 0),
        Case("two sentences", np.array([[5, 3, 0, 0], [4, 0, 0, 0]]), 0),
        Case("another padding", np.array([[1, 0, 7, 7]]), 7),
        Case("ids that may be negative", rng.integers(-2, 3, size=(B, S)), -1),
        Case("random sentences", rng.integers(0, 3, size=(B, S)), 1),
    ]


exercise = Task(
    answer=padding_mask,
    title="the mask of the keys that are not padding",
    page="attention/masks",
    task="""
        Sentences of a batch have different lengths: the shorter ones are filled up with pad_id. Make the mask of the keys
        that are no padding, with a shape that broadcasts to that of the scores, (B, H, T, S): the same for all heads and
        all queries of a sentence.""",
    arguments={"ids": "(B, S) array of int", "pad_id": "int"},
    results={"keep": "(B, 1, 1, S) array of bool, True = may attend"},
    expected=reference.padding_mask,
    cases=cases,
    mistakes=(
        Mistake(
            {"[:, None, None, :]": "[:, None, :, None]"},
            "the mask hides queries, not keys: the keys are the last axis, (B, 1, 1, S)",
        ),
        Mistake(
            {"ids != pad_id": "ids == pad_id"},
            "the mask is True at the padding; here True = may attend",
        ),
        Mistake(
            {"[:, None, None, :]": ""},
            "a mask (B, S) would be broadcast to (…, T, S) as if B were T: heads and queries need axes of size 1",
        ),
        Mistake(
            {"[:, None, None, :]": "[None, None, :, :]"},
            "the axes of size 1 belong between B and S",
        ),
        Mistake({"ids != pad_id": "ids != 0"}, explanations.PADDING_IS_0),
        Mistake(
            {"ids != pad_id": "ids > pad_id"}, "ids below pad_id are words too: compare with !="
        ),
    ),
    hints=(
        "Comparing an array with a number gives an array of booleans.",
        "x[:, None, None, :] inserts two axes of size 1 in the middle.",
    ),
)
