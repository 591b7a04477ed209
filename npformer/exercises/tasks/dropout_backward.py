"""The backward pass of dropout."""

import numpy as np

from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def dropout_backward(dy, kept, rate):
    return np.where(kept, dy / (1 - rate), 0.0)


def expected(dy, kept, rate):
    return gradients_of(lambda x: kept / (1 - rate) * x)(dy, np.ones(dy.shape))


def cases(rng):
    T, D = sizes(rng, 2)
    return [
        Case(
            "four numbers", np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, False, True, True]), 0.5
        ),
        Case("an array", draw(rng, 3, 4), rng.random((3, 4)) >= 0.2, 0.2),
        Case("nothing dropped", draw(rng, T, D), np.ones((T, D), bool), 0.0),
        Case("other sizes", draw(rng, T, D), rng.random((T, D)) >= 0.75, 0.75),
    ]


exercise = Task(
    answer=dropout_backward,
    title="the backward pass of dropout",
    page="gradients/activations",
    task="""
        Dropout sets some entries to 0 and divides the others by 1 - rate, so that the expected value stays the same:

            y = x / (1 - rate) where kept, else 0

        Given dy and kept, return dx.""",
    arguments={"dy": "(...) array", "kept": "(...) array of bool", "rate": "float, 0 <= rate < 1"},
    results={"dx": "(...) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"dy / (1 - rate)": "dy"},
            "the factor 1 / (1 - rate) belongs to the forward pass and so to the backward pass",
        ),
        Mistake(
            {"dy / (1 - rate)": "dy / rate"},
            "the divisor is the probability that an entry is kept, 1 - rate",
        ),
        Mistake(
            {"dy / (1 - rate)": "dy * (1 - rate)"},
            "it is multiplied by 1 - rate; the forward pass divides",
        ),
        Mistake(
            {"np.where(kept, dy / (1 - rate), 0.0)": "dy / (1 - rate)"},
            "a dropped entry does not influence y: its gradient is 0",
        ),
        Mistake(
            {"kept, dy / (1 - rate), 0.0": "kept, 0.0, dy / (1 - rate)"},
            "kept is True where the entry was kept",
        ),
        Mistake(
            {
                "np.where(kept, dy / (1 - rate), 0.0)": "np.where(np.random.default_rng(0).random(dy.shape) >= rate, dy / (1 - rate), 0.0)"
            },
            "other entries are dropped than in the forward pass: use kept",
        ),
    ),
    hints=(
        "For each entry y is x times a number: what is the number?",
        "dx = dy times the same number.",
    ),
)
