"""Find the bug: positions that number the sentences."""

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task, draw


def fix_positions(x, encoding):
    width = x.shape[-1]
    return x * np.sqrt(width) + encoding[: x.shape[1]]


GIVEN = """
def fix_positions(x, encoding):
    batch = x.shape[0]
    return x + encoding[:batch, None]
"""


def cases(rng):
    B, T, half = (int(n) for n in rng.integers(1, 5, size=3))
    return [
        Case("one word", draw(rng, 1, 1, 4), reference.sinusoidal_encoding(5, 4)),
        Case(
            "two sentences of three words", draw(rng, 2, 3, 4), reference.sinusoidal_encoding(5, 4)
        ),
        Case("two sentences of two words", draw(rng, 2, 2, 4), reference.sinusoidal_encoding(5, 4)),
        Case("other sizes", draw(rng, B, T, 2 * half), reference.sinusoidal_encoding(6, 2 * half)),
        Case("as many words as positions", draw(rng, 1, 5, 2), draw(rng, 5, 2)),
    ]


def expected(x, encoding):
    out = np.zeros(x.shape)
    for b, t, i in np.ndindex(x.shape):
        out[b, t, i] = x[b, t, i] * x.shape[-1] ** 0.5 + encoding[t, i]
    return out


exercise = Task(
    answer=fix_positions,
    title="find the bug: positions that number the sentences",
    page="model/embeddings",
    task="""
        The input of the model: the embeddings times √D, plus the positional encoding of each word's place in its sentence.
        The code was written for arrays (T, B, D), and here the batch comes first. Two things are wrong.""",
    arguments={"x": "(B, T, D) array, the embeddings", "encoding": "(max_len, D) array"},
    results={"y": "(B, T, D) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake({"x * np.sqrt(width)": "x"}, "the embeddings are not multiplied by √D"),
        Mistake(
            {"encoding[: x.shape[1]]": "encoding[: x.shape[0], None]"},
            "all words of a sentence get the same position, the number of the sentence: the second axis is that of the words",
        ),
        Mistake(
            {"x.shape[1]": "x.shape[0]"},
            "the encoding is cut after as many rows as there are sentences: the words are the second axis",
        ),
        Mistake(
            {
                "x * np.sqrt(width) + encoding[: x.shape[1]]": "(x + encoding[: x.shape[1]]) * np.sqrt(width)"
            },
            "the encoding is multiplied by √D too: only the embeddings are",
        ),
        Mistake(
            {"[: x.shape[1]]": ""},
            "the encoding has max_len rows: cut it after as many as the sentence has words",
        ),
    ),
    hints=(
        "Which axis of x counts the words of a sentence?",
        "encoding[:T] has shape (T, D), which broadcasts over the batch.",
        "What does section 3.4 of the paper do with the embeddings?",
    ),
    given=GIVEN,
)
