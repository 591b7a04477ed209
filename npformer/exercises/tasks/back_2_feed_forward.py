"""The second step back through a layer: the feed-forward layer."""

import numpy as np

from npformer.exercises import one_word
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def back_2_feed_forward(ds, x, W1, b1, W2):
    dh = np.where(x @ W1 + b1 > 0, ds @ W2.T, 0)
    return ds + dh @ W1.T


def cases(rng):
    D, F = sizes(rng, 2, low=2)
    word = one_word.ds2, one_word.x2, one_word.W1, one_word.b1, one_word.W2
    square = draw(rng, D), draw(rng, D), draw(rng, D, D), draw(rng, D), draw(rng, D, D)
    another = draw(rng, D), draw(rng, D), draw(rng, D, F), draw(rng, F), draw(rng, F, D)
    of_zeros = draw(rng, D), np.zeros(D), draw(rng, D, F), np.zeros(F), draw(rng, F, D)
    return [
        Case(one_word.SENTENCE, *word),
        Case("another word", *another),
        Case("square weights", *square),
        Case("hidden units that are 0", *of_zeros),
    ]


def forward(x, W1, b1, W2):
    h = x @ W1 + b1
    return x + np.where(h.real > 0, h, 0) @ W2


exercise = Task(
    answer=back_2_feed_forward,
    title="one layer back, 2 (step 5 back): the feed-forward layer",
    page="gradients/residual",
    task="""
        s = x + relu(x W₁ + b₁) W₂. Given ds, which you have computed in back_1, return dx. x is used twice: in the sum and
        as the input of the feed-forward layer. The derivative of relu at 0 is 0.""",
    arguments={
        "ds": "(D,) array",
        "x": "(D,) array, x₂",
        "W1": "(D, F) array",
        "b1": "(F,) array",
        "W2": "(F, D) array",
    },
    results={"dx": "(D,) array"},
    expected=gradients_of(forward, [0]),
    cases=cases,
    mistakes=(
        Mistake(
            {"return ds + dh": "return dh"},
            "x is used twice: what goes past the feed-forward layer, ds, is missing",
        ),
        Mistake(
            {"return ds + dh @ W1.T": "return ds"},
            "what comes through the feed-forward layer is missing",
        ),
        Mistake(
            {"np.where(x @ W1 + b1 > 0, ds @ W2.T, 0)": "ds @ W2.T"},
            "the backward pass of relu is missing",
        ),
        Mistake(
            {"x @ W1 + b1 > 0": "x @ W1 > 0"},
            "the bias is missing where relu decides: h = x W₁ + b₁",
        ),
        Mistake({"b1 > 0": "b1 >= 0"}, "where h = 0, the derivative of relu is taken to be 0"),
        Mistake({"ds @ W2.T": "ds @ W2"}, "W₂ is not transposed"),
        Mistake({"dh @ W1.T": "dh @ W1"}, "W₁ is not transposed"),
    ),
    hints=(
        "With h = x W₁ + b₁: the gradient of relu(h) is ds W₂ᵀ, and dh is the same where h > 0, else 0.",
        "dx = ds + dh W₁ᵀ.",
    ),
)
