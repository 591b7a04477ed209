"""Splitting the width into heads."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw, sizes


def split_heads(x, n_heads):
    *batch, T, D = x.shape
    return x.reshape(*batch, T, n_heads, D // n_heads).swapaxes(-2, -3)


def cases(rng):
    B, T, H, K = sizes(rng, 4, low=2)
    return [
        Case("two words, two heads of two", np.arange(8.0).reshape(2, 4), 2),
        Case("(3, 128), which becomes (4, 3, 32)", draw(rng, 3, 128), 4),
        Case("(10, 512), which becomes (8, 10, 64)", draw(rng, 10, 512), 8),
        Case("one head", draw(rng, T, K), 1),
        Case("heads of one number", draw(rng, T, H), H),
        Case("a batch", draw(rng, B, T, H * K), H),
    ]


exercise = Task(
    answer=split_heads,
    title="split the width into heads: (3, 128) → (4, 3, 32)",
    page="attention/heads",
    task="""
        Divide the width D into H = n_heads heads of width K = D / H, and move the axis of the heads before that of the
        positions. Head h of a position is x[..., h * K : (h + 1) * K].

        (3, 128) with 4 heads becomes (4, 3, 32); in a batch, (1, 10, 512) with 8 heads becomes (1, 8, 10, 64).""",
    arguments={"x": "(..., T, D) array", "n_heads": "int, a divisor of D"},
    results={"heads": "(..., H, T, K) array"},
    expected=reference.split_heads,
    cases=cases,
    mistakes=(
        Mistake(
            {
                "x.reshape(*batch, T, n_heads, D // n_heads).swapaxes(-2, -3)": "x.reshape(*batch, n_heads, T, D // n_heads)"
            },
            "reshape alone mixes positions and heads: first divide the last axis, then swap two axes",
        ),
        Mistake({"D // n_heads": "D / n_heads"}, explanations.FLOAT_WIDTH),
        Mistake({".swapaxes(-2, -3)": ""}, explanations.HEADS_STILL_BEHIND),
        Mistake(
            {".swapaxes(-2, -3)": ".swapaxes(0, 1)"},
            "swapaxes(0, 1) is right for one sentence: in a batch the first axis is another one, so count from the end",
        ),
        Mistake(
            {".swapaxes(-2, -3)": ".swapaxes(-1, -2)"},
            "this swaps the last two axes, the heads and their numbers: swap the positions and the heads",
        ),
        Mistake(
            {
                "T, n_heads, D // n_heads).swapaxes(-2, -3)": "T, D // n_heads, n_heads).swapaxes(-1, -3).swapaxes(-1, -2)"
            },
            explanations.EVERY_HTH,
        ),
        Mistake(
            {".swapaxes(-2, -3)": ".transpose(1, 0, 2)"},
            "transpose(1, 0, 2) is for three axes: x may have a batch",
        ),
    ),
    hints=(
        "A reshape that only divides the last axis, (T, D) → (T, H, K), keeps neighbours together.",
        "swapaxes(-2, -3) then exchanges the axes of positions and heads, with or without a batch before them.",
    ),
)
