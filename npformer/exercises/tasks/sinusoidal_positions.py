"""Sinusoidal positions."""

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task


def sinusoidal_positions(length, d_model):
    position = np.arange(length)[:, None]
    frequency = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    encoding = np.zeros((length, d_model))
    encoding[:, 0::2] = np.sin(position * frequency)
    encoding[:, 1::2] = np.cos(position * frequency)
    return encoding


def cases(rng):
    length, half = (int(n) for n in rng.integers(1, 9, size=2))
    return [
        Case("two positions, width 4", 2, 4),
        Case("width 2", 6, 2),
        Case("width 128", 3, 128),
        Case("a thousand positions", 1000, 8),
        Case("other sizes", length, 2 * half),
    ]


exercise = Task(
    answer=sinusoidal_positions,
    title="sinusoidal positions",
    page="model/embeddings",
    task="""
        Compute the positional encoding of section 3.5 of "Attention Is All You Need", for pos = 0, 1, …, length - 1:

            PE[pos, 2i]     = sin(pos / 10000^(2i/D))
            PE[pos, 2i + 1] = cos(pos / 10000^(2i/D))

        D = d_model is even. For D = 128 the factors 1 / 10000^(2i/D) begin with 1, 0.8660, 0.7499.""",
    arguments={"length": "int", "d_model": "int, even"},
    results={"encoding": "(length, D) array"},
    expected=reference.sinusoidal_encoding,
    cases=cases,
    mistakes=(
        Mistake(
            {"np.arange(0, d_model, 2)": "2 * np.arange(0, d_model, 2)"},
            "2i is 0, 2, 4, …: np.arange(0, D, 2) has these numbers already, without a factor of 2",
        ),
        Mistake(
            {"np.arange(0, d_model, 2)": "np.arange(d_model // 2)"},
            "the exponent is i/D; expected 2i/D",
        ),
        Mistake(
            {"(-np.arange": "(np.arange"},
            "the frequencies grow with i: the power of 10000 belongs below the line",
        ),
        Mistake(
            {
                "encoding[:, 0::2]": "encoding[:, : d_model // 2]",
                "encoding[:, 1::2]": "encoding[:, d_model // 2 :]",
            },
            "all sines come first, then all cosines; here they alternate",
        ),
        Mistake({"0::2": "X::2", "1::2": "0::2", "X::2": "1::2"}, "sine and cosine are exchanged"),
        Mistake(
            {"np.arange(length)[:, None]": "np.arange(1, length + 1)[:, None]"},
            "positions begin at 0",
        ),
    ),
    hints=(
        "A column of positions (length, 1) times a row of D/2 frequencies gives every angle at once.",
        "np.arange(0, D, 2) is 2i; 10000.0 ** (-np.arange(0, D, 2) / D) are the frequencies.",
        "encoding[:, 0::2] are the even columns, encoding[:, 1::2] the odd ones.",
    ),
)
