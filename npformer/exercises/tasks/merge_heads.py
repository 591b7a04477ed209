"""Merging the heads."""

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task, draw, sizes


def merge_heads(heads):
    *batch, H, T, K = heads.shape
    return heads.swapaxes(-2, -3).reshape(*batch, T, H * K)


def cases(rng):
    B, T, H, K = sizes(rng, 4, low=2)
    return [
        Case("two heads of two words", np.arange(8.0).reshape(2, 2, 2)),
        Case("(4, 3, 32), which becomes (3, 128)", draw(rng, 4, 3, 32)),
        Case("one head", draw(rng, 1, T, K)),
        Case("a batch", draw(rng, B, H, T, K)),
    ]


exercise = Task(
    answer=merge_heads,
    title="merge the heads again: (4, 3, 32) → (3, 128)",
    page="attention/heads",
    task="""
        The inverse of split_heads: put the heads of each position side by side, head 1 first.""",
    arguments={"heads": "(..., H, T, K) array"},
    results={"x": "(..., T, H·K) array"},
    expected=reference.merge_heads,
    cases=cases,
    mistakes=(
        Mistake(
            {".swapaxes(-2, -3)": ""},
            "reshape alone mixes positions and heads: swap their axes first",
        ),
        Mistake(
            {".swapaxes(-2, -3)": ".swapaxes(-1, -3)"},
            "the axes of heads and of numbers are swapped, not those of heads and positions",
        ),
        Mistake({"(*batch, T, H * K)": "(T, H * K)"}, "the axes of the batch are lost"),
        Mistake(
            {"heads.swapaxes(-2, -3)": "np.moveaxis(heads, -3, -1)"},
            "the numbers of different heads alternate; each head should stay in one piece",
        ),
    ),
    hints=(
        "For one position the heads have to be neighbours in memory before reshape joins them.",
        "swapaxes(-2, -3) gives (..., T, H, K).",
    ),
)
