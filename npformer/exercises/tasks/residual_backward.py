"""The backward pass of a residual block."""

import numpy as np

from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def residual_backward(dy, x, weight):
    dh = np.where(x @ weight > 0, dy, 0)
    dx = dy + dh @ weight.T
    dweight = x.T @ dh
    return dx, dweight


def cases(rng):
    T, D = sizes(rng, 2, low=2)
    return [
        Case(
            "one row",
            np.array([[1.0, 10.0]]),
            np.array([[1.0, 2.0]]),
            np.array([[1.0, -1.0], [0.5, 0.25]]),
        ),
        Case("several rows", draw(rng, 4, 3), draw(rng, 4, 3), draw(rng, 3, 3)),
        Case("as many rows as columns", *draw(rng, 3, 3, 3)),
        Case("other sizes", draw(rng, T, D), draw(rng, T, D), draw(rng, D, D)),
        Case(
            "zeros under the ReLU",
            draw(rng, 2, 2),
            np.array([[0.0, 0.0], [1.0, 2.0]]),
            draw(rng, 2, 2),
        ),
    ]


def block(x, weight):
    h = x @ weight
    return x + np.where(h.real > 0, h, 0)


exercise = Task(
    answer=residual_backward,
    title="the backward pass of a residual block",
    page="gradients/residual",
    task="""
        y = x + relu(x W): the input goes round the layer and is added to its output. Given dy, return dx and dW.

        x is used twice, so its gradient is the sum of what comes back on both ways. The derivative of ReLU at 0 is 0.""",
    arguments={"dy": "(T, D) array", "x": "(T, D) array", "weight": "(D, D) array"},
    results={"dx": "(T, D) array", "dweight": "(D, D) array"},
    expected=gradients_of(block),
    cases=cases,
    mistakes=(
        Mistake(
            {"dx = dy + dh @": "dx = dh @"},
            "the gradient that goes round the layer is missing in dx: add dy",
        ),
        Mistake(
            {"dx = dy + dh @ weight.T": "dx = dy"},
            "the gradient that goes through the layer is missing in dx",
        ),
        Mistake(
            {"dx = dy + dh @ weight.T": "dx = dy * (dh @ weight.T)"},
            "the gradients of the two ways are added, not multiplied",
        ),
        Mistake({"np.where(x @ weight > 0, dy, 0)": "dy"}, "the backward pass of ReLU is missing"),
        Mistake(
            {"x @ weight > 0": "x > 0"}, "ReLU is applied to x W, so it is x W > 0 that decides"
        ),
        Mistake({"dh @ weight.T": "dh @ weight"}, "the weight is not transposed"),
        Mistake(
            {"x.T @ dh": "x.T @ dy"},
            "dW is the gradient of the inner layer: it uses what comes back through the ReLU, not dy",
        ),
        Mistake(
            {"weight > 0": "weight >= 0"}, "where x W = 0, the derivative of ReLU is taken to be 0"
        ),
    ),
    hints=(
        "With h = x W: y = x + relu(h), so dh = dy where h > 0, else 0.",
        "dW = xᵀ dh, and through the layer comes dh Wᵀ.",
        "dx = dy + dh Wᵀ.",
    ),
)
