"""The backward pass of GELU."""

import numpy as np

from npformer import reference
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def gelu_backward(dy, x):
    c = np.sqrt(2 / np.pi)
    t = np.tanh(c * (x + 0.044715 * x**3))
    slope = c * (1 + 3 * 0.044715 * x**2)
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t**2) * slope)


def cases(rng):
    B, T, D = sizes(rng, 3)
    return [
        Case("three numbers", np.ones(3), np.array([-1.0, 0.0, 1.0])),
        Case("an array", draw(rng, T, D), draw(rng, T, D)),
        Case("a batch", draw(rng, B, T, D), 3 * draw(rng, B, T, D)),
        Case("large numbers", draw(rng, 4), np.array([-30.0, -6.0, 6.0, 30.0])),
    ]


exercise = Task(
    answer=gelu_backward,
    title="the backward pass of GELU",
    page="gradients/activations",
    task="""
        y = ½ x (1 + t)  with  t = tanh(u)  and  u = √(2/π) (x + 0.044715 x³). Given dy and x, return dx.

        It needs the rule for a product and the rule for a chain; tanh'(u) = 1 - tanh(u)².""",
    arguments={"dy": "(...) array", "x": "(...) array"},
    results={"dx": "(...) array"},
    expected=gradients_of(reference.gelu),
    cases=cases,
    mistakes=(
        Mistake(
            {" + 0.5 * x * (1 - t**2) * slope": ""},
            "t depends on x too: the second term of the product rule is missing",
        ),
        Mistake(
            {"0.5 * (1 + t) + ": ""}, "the first term of the product rule, ½ (1 + t), is missing"
        ),
        Mistake(
            {" * slope": ""}, "the chain rule: multiply by du/dx = √(2/π) (1 + 3 · 0.044715 x²)"
        ),
        Mistake({"slope = c * (": "slope = ("}, "the factor √(2/π) of du/dx is missing"),
        Mistake(
            {"1 + 3 * 0.044715": "1 + 0.044715"},
            "the derivative of x³ is 3 x²: the factor 3 is missing",
        ),
        Mistake({"(1 - t**2)": "(1 - t)"}, "tanh'(u) = 1 - tanh(u)²: the square is missing"),
        Mistake({"return dy * (": "return ("}, "the derivative has to be multiplied by dy"),
    ),
    hints=(
        "dy/dx = ½ (1 + t) + ½ x · dt/dx.",
        "dt/dx = (1 - t²) · du/dx, and du/dx = √(2/π) (1 + 3 · 0.044715 x²).",
    ),
)
