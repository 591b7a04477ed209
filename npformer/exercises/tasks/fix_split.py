"""Find the bug: a float in reshape."""

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw


def fix_split(x, n_heads):
    length, width = x.shape
    return x.reshape(length, n_heads, width // n_heads).transpose(1, 0, 2)


GIVEN = """
def fix_split(x, n_heads):
    length, width = x.shape
    return x.reshape(n_heads, length, width / n_heads)
"""


def cases(rng):
    T, H, K = (int(n) for n in rng.integers(1, 6, size=3))
    return [
        Case("two words, two heads", draw(rng, 2, 4), 2),
        Case("(3, 128), which becomes (4, 3, 32)", draw(rng, 3, 128), 4),
        Case("other sizes", draw(rng, T, H * K), H),
        Case("three words, two heads", draw(rng, 3, 4), 2),
    ]


exercise = Task(
    answer=fix_split,
    title="find the bug: heads that mix the words",
    page="attention/heads",
    task="""
        The function should split the width into heads, (3, 128) → (4, 3, 32): head h of word t is
        x[t, h * 32 : (h + 1) * 32]. It raises an error; and when that is gone, the numbers are still wrong.""",
    arguments={"x": "(T, D) array", "n_heads": "int, a divisor of D"},
    results={"heads": "(H, T, D / H) array"},
    expected=lambda x, n_heads: reference.split_heads(x, n_heads),
    cases=cases,
    mistakes=(
        Mistake(
            {"width // n_heads": "width / n_heads"},
            "width / n_heads is a float even if it has no remainder: //",
        ),
        Mistake(
            {
                "(length, n_heads, width // n_heads).transpose(1, 0, 2)": "(n_heads, length, width // n_heads)"
            },
            "the shape is right, but reshape takes the numbers in the order of memory: words and heads are mixed",
        ),
        Mistake({".transpose(1, 0, 2)": ""}, explanations.HEADS_FIRST),
        Mistake(
            {".transpose(1, 0, 2)": ".transpose(1, 2, 0)"},
            "each head is transposed: it should be (T, K)",
        ),
    ),
    hints=(
        "In Python 128 / 4 is 32.0.",
        "Divide the last axis alone, (T, D) → (T, H, K), then exchange the first two axes.",
    ),
    given=GIVEN,
)
