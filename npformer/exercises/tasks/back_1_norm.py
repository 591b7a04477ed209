"""The first step back through a layer: the second normalisation."""

import numpy as np

from npformer import reference
from npformer.exercises import one_word
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def back_1_norm(dy, s):
    deviation = s - s.mean()
    rstd = 1 / np.sqrt((deviation**2).mean() + 1e-5)
    y = deviation * rstd
    return rstd * (dy - dy.mean() - y * (dy * y).mean())


def cases(rng):
    (D,) = sizes(rng, 1, low=4)
    return [
        Case(one_word.SENTENCE, one_word.dy, one_word.s2),
        Case("another word", *draw(rng, 2, D)),
    ]


exercise = Task(
    answer=back_1_norm,
    title="one layer back, 1 (step 6 back): the second normalisation",
    page="gradients/residual",
    task="""
        In docs/model/layers.md, e₂ becomes e₂′ in six steps. Go back through them, the last one first. Its sum s = x₂ + fed
        became y = e₂′ = (s - mean(s)) / √(variance(s) + 10⁻⁵). Given dy, the gradient of the loss with respect to y, return
        ds. Gain and bias are 1 and 0.""",
    arguments={"dy": "(D,) array", "s": "(D,) array, x₂ + fed"},
    results={"ds": "(D,) array"},
    expected=gradients_of(lambda s: reference.layer_norm(s, np.ones(len(s)), np.zeros(len(s)))[0]),
    cases=cases,
    mistakes=(
        Mistake(
            {"(dy - dy.mean() - y * (dy * y).mean())": "dy"},
            "mean and variance depend on s too: two terms are missing",
        ),
        Mistake(
            {" - y * (dy * y).mean()": ""}, "the term of the variance is missing: y · mean(dy · y)"
        ),
        Mistake({"dy - dy.mean() -": "dy -"}, "the term of the mean is missing: mean(dy)"),
        Mistake({"return rstd * ": "return "}, "the factor 1/√(variance + 10⁻⁵) is missing"),
        Mistake(
            {"y * (dy * y).mean()": "(dy * y).mean()"},
            "the last term is y times a mean; the factor y is missing",
        ),
    ),
    hints=(
        "Compute y and rstd = 1 / √(variance + 10⁻⁵) again.",
        "ds = rstd · (dy - mean(dy) - y · mean(dy · y)).",
    ),
)
