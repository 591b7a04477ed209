"""Find the bug: a causal mask with three heads."""

import numpy as np

from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task


def fix_square_mask(n_heads, length):
    one_head = np.triu(np.full((length, length), -np.inf), k=1)
    return np.stack([one_head] * n_heads)


GIVEN = """
def fix_square_mask(n_heads, length):
    one_head = np.triu(np.full((length, length), -np.inf))
    heads = np.dstack([one_head] * n_heads)
    return np.array([heads[:, :, 0], heads[:, :, 1], heads[:, :, 2]])
"""


def expected(n_heads, length):
    t = np.arange(length)
    mask = np.where(t[:, None] < t, -np.inf, 0.0)
    return np.tile(mask, (n_heads, 1, 1))


def cases(rng):
    return [
        Case("three heads", 3, 3),
        Case("four heads", 4, 3),
        Case("two heads", 2, 2),
        Case("one head", 1, 4),
        Case("other numbers", *(int(n) for n in rng.integers(1, 7, size=2))),
    ]


exercise = Task(
    answer=fix_square_mask,
    title="find the bug: a causal mask that hides too much",
    page="attention/more-masks",
    task="""
        The function should make the causal mask in its additive form, once for each head: 0 where query t may attend to
        key s <= t, -inf above the diagonal. Two things are wrong with it.""",
    arguments={"n_heads": "int", "length": "int"},
    results={"mask": "(n_heads, length, length) array, of 0 and -inf"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {", k=1": ""},
            "the diagonal is hidden too: a position may attend to itself, so begin one above the diagonal",
        ),
        Mistake({"[one_head] * n_heads": "[one_head] * 3"}, "the number of heads is always three"),
        Mistake(
            {
                "np.stack([one_head] * n_heads)": "np.array([np.dstack([one_head] * n_heads)[:, :, h] for h in (0, 1, 2)])"
            },
            "the indices of three heads are written into the code: there are n_heads",
        ),
        Mistake(
            {"np.stack([one_head] * n_heads)": "np.dstack([one_head] * n_heads)"},
            explanations.HEADS_FIRST,
        ),
        Mistake({"np.triu(": "np.tril(", "k=1": "k=-1"}, "the past is hidden, not the future"),
    ),
    hints=(
        "Print the mask for three heads of length 3. May word 0 attend to itself?",
        "Call it with four heads, and with two.",
    ),
    given=GIVEN,
)
