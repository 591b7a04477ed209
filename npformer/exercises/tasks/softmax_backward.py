"""The backward pass of softmax."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def softmax_backward(dy, y):
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


def expected(dy, y):
    """The gradient at x = log y, where softmax(x) is y."""
    x = np.log(np.where(y == 0, 1, y))
    return gradients_of(lambda x: reference.softmax(np.where(y == 0, -np.inf, x)))(dy, x)


def cases(rng):
    B, T, S = sizes(rng, 3, low=2)
    hidden = np.where(rng.random((T, S)) < 0.5, -np.inf, draw(rng, T, S))
    hidden[:, 0] = 0
    return [
        Case("one row", np.array([16.0, 0.0]), np.array([0.25, 0.75])),
        Case("two rows", draw(rng, 2, 3), reference.softmax(draw(rng, 2, 3))),
        Case("as many rows as columns", draw(rng, 3, 3), reference.softmax(draw(rng, 3, 3))),
        Case(
            "the same dy everywhere, which gives 0",
            np.full((2, 3), 5.0),
            reference.softmax(draw(rng, 2, 3)),
        ),
        Case("a batch", draw(rng, B, T, S), reference.softmax(draw(rng, B, T, S))),
        Case("some weights of 0", draw(rng, T, S), reference.softmax(hidden)),
    ]


exercise = Task(
    answer=softmax_backward,
    title="the backward pass of softmax",
    page="gradients/softmax",
    task="""
        y = softmax(x), along the last axis. Given dy, the gradient of the loss with respect to y, and y itself, return dx.

        Every y_j of a row depends on every x_i of it: ∂y_j/∂x_i = y_j (δ_ij - y_i). Sum over j, and use no loop.""",
    arguments={"dy": "(..., n) array", "y": "(..., n) array, the result of softmax"},
    results={"dx": "(..., n) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"(dy - (dy * y).sum(axis=-1, keepdims=True))": "dy * (1 - y)"},
            "this is the derivative of y_i with respect to x_i alone; the other entries of the row depend on x_i too",
        ),
        Mistake(
            {"axis=-1, keepdims=True": "axis=-2, keepdims=True"},
            "this is what one gets if the sum over keys is taken over the wrong axis: it is the last axis that sums to 1",
        ),
        Mistake({"axis=-1, keepdims=True": ""}, explanations.SUM_OF_ALL),
        Mistake({"(dy * y).sum": "dy.sum"}, "the sum is of dy · y, not of dy alone"),
        Mistake({"(dy * y).sum": "(dy * y).mean"}, "the mean is taken; expected the sum"),
        Mistake({"dy - (": "dy + ("}, "the sum is subtracted, not added"),
        Mistake({"y * (dy -": "(dy -"}, "the factor y in front is missing"),
        Mistake(
            {"y * (dy - (dy * y).sum(axis=-1, keepdims=True))": "y * dy"},
            "the sum Σ_j dy_j y_j, which comes from the divisor, is missing",
        ),
    ),
    hints=(
        "dx_i = Σ_j dy_j ∂y_j/∂x_i. Put ∂y_j/∂x_i = y_j (δ_ij - y_i) in.",
        "Σ_j dy_j y_j δ_ij is dy_i y_i; the other part is y_i Σ_j dy_j y_j.",
        "dx = y · (dy - s), where s is one number a row.",
    ),
)
