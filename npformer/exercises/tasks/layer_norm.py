"""Layer normalisation."""

import numpy as np

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw, sizes


def layer_norm(x, gain, bias, eps):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * gain + bias


def cases(rng):
    B, T, D = sizes(rng, 3, low=2)
    gain = np.array([1.0, 2.0, 3.0])
    bias = np.array([0.0, 10.0, 20.0])
    return [
        Case("one row", np.array([1.0, 3.0]), np.ones(2), np.zeros(2), 1e-5),
        Case("gain and bias", np.array([[1.0, 2.0, 6.0]]), gain, bias, 1e-5),
        Case("as many rows as columns", draw(rng, 3, 3), *draw(rng, 2, 3), 1e-5),
        Case("a batch", 3 * draw(rng, B, T, D) + 2, *draw(rng, 2, D), 1e-5),
        Case("a large eps", draw(rng, T, D), *draw(rng, 2, D), 0.5),
        Case("a row of equal numbers", np.full((1, D), 7.0), *draw(rng, 2, D), 1e-5),
        Case("a large mean", draw(rng, T, D) + 1e5, *draw(rng, 2, D), 1e-5),
    ]


def expected(x, gain, bias, eps):
    return reference.layer_norm(x, gain, bias, eps)[0]


exercise = Task(
    answer=layer_norm,
    title="layer normalisation",
    page="model/layers",
    task="""
        Normalise each row (the last axis) to mean 0 and variance 1, then multiply by the gain and add the bias:

            y = (x - mean) / √(variance + eps) · gain + bias

        The variance is the mean of the squared deviations from the mean (not divided by D - 1).""",
    arguments={"x": "(..., D) array", "gain": "(D,) array", "bias": "(D,) array", "eps": "float"},
    results={"y": "(..., D) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake({"return (x - mean) /": "return x /"}, "the mean is not subtracted from x"),
        Mistake(
            {"((x - mean) ** 2)": "(x**2)", "return (x - mean) /": "return x /"},
            "the mean is not subtracted, neither from x nor in the variance (this is RMS normalisation)",
        ),
        Mistake(
            {"axis=-1, ": ""}, "mean and variance are taken over the whole array, not over each row"
        ),
        Mistake({" + bias": ""}, "the bias is missing"),
        Mistake({" * gain": ""}, "the gain is missing"),
        Mistake(
            {"axis=-1": "axis=0"},
            "mean and variance are taken over the first axis (as batch normalisation does), not over each row",
        ),
        Mistake(
            {"np.sqrt(variance + eps)": "(np.sqrt(variance) + eps)"},
            "eps is added to the standard deviation: it belongs inside the root",
        ),
        Mistake(
            {"np.sqrt(variance + eps)": "(variance + eps)"}, "the root of the variance is missing"
        ),
        Mistake(
            {"np.sqrt(variance + eps)": "np.sqrt(variance)"},
            "eps is missing: a row of equal numbers gives 0 / 0",
        ),
        Mistake(
            {
                "((x - mean) ** 2).mean(axis=-1, keepdims=True)": "x.var(axis=-1, ddof=1, keepdims=True)"
            },
            "the squares are divided by D - 1; here they are divided by D",
        ),
        Mistake(
            {"((x - mean) ** 2).mean(axis=-1, keepdims=True)": "x.var()"},
            explanations.VARIANCE_OF_ALL,
        ),
        Mistake(
            {
                "((x - mean) ** 2).mean(axis=-1, keepdims=True)": "(x * x).mean(axis=-1, keepdims=True) - mean * mean"
            },
            "E[x²] - E[x]² loses its digits where the mean is large: take the mean of (x - mean)²",
        ),
        Mistake(
            {"* gain + bias": "* (gain + bias)"},
            "the bias is multiplied by the normalised row: it is added after the gain",
        ),
        Mistake({" * gain + bias": ""}, "gain and bias are missing"),
    ),
    hints=(
        "mean(axis=-1, keepdims=True) has shape (..., 1), which broadcasts over the row.",
        "variance = mean of (x - mean)²; eps is added to it inside the root.",
    ),
)
