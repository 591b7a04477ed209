"""Find the bug: attention whose mask function has the wrong arity."""

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task, draw, sizes
from npformer.reference import softmax


def fix_causal_attention(q, k, v, causal):
    n_heads, length, width = q.shape

    def square_mask(n_heads, length):
        one_head = np.triu(np.full((length, length), -np.inf), k=1)
        return np.stack([one_head] * n_heads)

    scores = q @ k.transpose(0, 2, 1) / np.sqrt(width)
    if causal:
        scores = scores + square_mask(n_heads, length)
    return softmax(scores) @ v


GIVEN = """
def fix_causal_attention(q, k, v, causal):
    n_heads, length, width = q.shape
    q /= np.sqrt(width)

    def square_mask(n_heads, length):
        one_head = np.triu(np.full((length, length), -np.inf), k=1)
        return np.stack([one_head] * n_heads)

    scores = q @ k.transpose(2, 1, 0)
    if causal:
        scores += square_mask(length)
    return softmax(scores) @ v
"""


def expected(q, k, v, causal):
    return reference.attention(q, k, v, causal=causal)[0]


def cases(rng):
    H, T, K = sizes(rng, 3, low=2)
    return [
        Case("one head", *draw(rng, 3, 1, 2, 2), False),
        Case("four heads", *draw(rng, 3, 4, 3, 2), False),
        Case("two heads, the future hidden", *draw(rng, 3, 2, 2, 2), True),
        Case("more heads, the future hidden", *draw(rng, 3, H, T, K), True),
    ]


exercise = Task(
    answer=fix_causal_attention,
    title="find the bug: attention that fails once it has a mask",
    page="attention/more-masks",
    task="""
        Attention of several heads, with the future hidden if causal is True. Three things are wrong: one changes what
        belongs to the caller, one concerns the axes, one shows only with causal=True.""",
    arguments={
        "q": "(H, T, K) array",
        "k": "(H, T, K) array",
        "v": "(H, T, K) array",
        "causal": "bool",
    },
    results={"out": "(H, T, K) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"square_mask(n_heads, length)\n    return": "square_mask(length)\n    return"},
            "square_mask takes two arguments, n_heads and length, but is called with one",
        ),
        Mistake(
            {
                "    scores = q @": "    q /= np.sqrt(width)\n    scores = q @",
                " / np.sqrt(width)\n    if": "\n    if",
            },
            "q /= … changes the array of the caller: q = q / …",
        ),
        Mistake(
            {"transpose(0, 2, 1)": "transpose(2, 1, 0)"},
            "transpose(2, 1, 0) moves the axis of the heads: swap the last two axes only",
        ),
        Mistake({" / np.sqrt(width)": ""}, "the scores are not divided by √K any more"),
        Mistake({"if causal:": "if True:"}, "the future is hidden also if causal is False"),
    ),
    hints=(
        "Is q of the caller the same after the call?",
        "k has axes (H, T, K); q @ kᵀ needs (H, K, T).",
        "How many arguments does square_mask take?",
    ),
    given=GIVEN,
    needs=("from npformer import softmax",),
)
