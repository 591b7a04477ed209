"""Find the bug: a call with an argument too many."""

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task, draw
from npformer.reference import softmax


def fix_multi_head(q, k, v, n_heads):
    length, width = q.shape

    def split(x):
        return x.reshape(length, n_heads, width // n_heads).transpose(1, 0, 2)

    def attend(q, k, v):
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        return softmax(scores) @ v

    heads = attend(split(q), split(k), split(v))
    return heads.transpose(1, 0, 2).reshape(length, width)


GIVEN = """
def fix_multi_head(q, k, v, n_heads):
    length, width = q.shape

    def split(x):
        return x.reshape(length, n_heads, width // n_heads).transpose(1, 0, 2)

    def attend(q, k, v):
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(width)
        return softmax(scores) @ v

    heads = attend(length, split(q), split(k), split(v))
    return heads.reshape(length, width)
"""


def expected(q, k, v, n_heads):
    q, k, v = (reference.split_heads(x, n_heads) for x in (q, k, v))
    return reference.merge_heads(reference.attention(q, k, v)[0])


def cases(rng):
    T, H, K = (int(n) for n in rng.integers(1, 6, size=3))
    return [
        Case("two words, one head", *draw(rng, 3, 2, 2), 1),
        Case("(3, 128), four heads", *draw(rng, 3, 3, 128), 4),
        Case("other sizes", *draw(rng, 3, T, H * K), H),
        Case("three words, two heads", *draw(rng, 3, 3, 4), 2),
    ]


exercise = Task(
    answer=fix_multi_head,
    title="find the bug: multi-head attention that cannot be called",
    page="attention/heads",
    task="""
        q, k and v are projected already. Split them into heads, attend in each head, and put the heads together again.
        Three things are wrong: one raises an error, one is a factor, and one mixes the words.""",
    arguments={
        "q": "(T, D) array",
        "k": "(T, D) array",
        "v": "(T, D) array",
        "n_heads": "int, a divisor of D",
    },
    results={"out": "(T, D) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"attend(split(q)": "attend(length, split(q)"},
            "attend takes three arguments and is called with four: length is one too many",
        ),
        Mistake(
            {"np.sqrt(q.shape[-1])": "np.sqrt(width)"},
            "the scores are divided by √D; each head has the width K = D / n_heads",
        ),
        Mistake(
            {"heads.transpose(1, 0, 2)": "heads"},
            "the heads are put together by reshape alone: first move the axis of the heads behind that of the words",
        ),
        Mistake({"k.transpose(0, 2, 1)": "k"}, "the keys are not transposed any more"),
    ),
    hints=(
        "Read the error: how many arguments does attend take?",
        "What is the width of the vectors whose product is a score?",
        "The last line has to undo split.",
    ),
    given=GIVEN,
    needs=("from npformer import softmax",),
)
