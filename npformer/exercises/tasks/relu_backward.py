"""The backward pass of ReLU."""

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def relu_backward(dy, x):
    return np.where(x > 0, dy, 0.0)


def cases(rng):
    B, T, D = sizes(rng, 3)
    x = draw(rng, T, D)
    return [
        Case("positive, zero and negative", np.array([5.0, 6.0, 7.0]), np.array([2.0, 0.0, -1.0])),
        Case("an array", draw(rng, T, D), x),
        Case(
            "a batch, with zeros",
            draw(rng, B, T, 4),
            rng.integers(-2, 3, size=(B, T, 4)).astype(float),
        ),
        Case("tiny numbers", draw(rng, 4), np.array([1e-300, -1e-300, 0.1, -0.1])),
    ]


exercise = Task(
    answer=relu_backward,
    title="the backward pass of ReLU",
    page="gradients/activations",
    task="""
        y = max(x, 0). Given dy and x, return dx. Where x is exactly 0, the derivative is taken to be 0.""",
    arguments={"dy": "(...) array", "x": "(...) array"},
    results={"dx": "(...) array"},
    expected=gradients_of(reference.relu),
    cases=cases,
    mistakes=(
        Mistake({"x > 0": "x >= 0"}, "at x = 0 the derivative is taken to be 0: compare with >"),
        Mistake({"x > 0": "dy > 0"}, "it is x that decides where the gradient passes, not dy"),
        Mistake({"x > 0": "x < 0"}, "the gradient passes where x is positive"),
        Mistake({"dy, 0.0": "1.0, 0.0"}, "this is the derivative alone: multiply it by dy"),
        Mistake({"dy, 0.0": "dy * x, 0.0"}, "the derivative is 1 where x is positive, not x"),
    ),
    hints=(
        "The derivative is 1 where x > 0, and 0 elsewhere.",
        "np.where(condition, a, b) chooses entry by entry.",
    ),
)
