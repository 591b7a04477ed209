"""The learning rate of the paper."""

import numpy as np

import npformer as nf
from npformer.exercises.exercise import Case, Mistake, Task


def noam_rate(step, d_model, warmup):
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def cases(rng):
    warmup = int(rng.integers(2, 1000))
    return [
        Case("the first step", 1, 512, 4000),
        Case("the highest rate", 4000, 512, 4000),
        Case("four times as many steps", 16000, 512, 4000),
        Case("a step of the warm-up", warmup // 2 + 1, 64, warmup),
        Case("a step after the warm-up", warmup * 3, 128, warmup),
    ]


def expected(step, d_model, warmup):
    # It is imported by this call, as that takes half a second.
    return np.float64(nf.noam(d_model, warmup)(step))


exercise = Task(
    answer=noam_rate,
    title="the learning rate with warm-up",
    page="training/schedules",
    task="""
        Section 5.3 of "Attention Is All You Need": the learning rate rises linearly for `warmup` steps, then falls with
        the inverse square root of the step.

            rate = D^-½ · min(step^-½, step · warmup^-1.5)""",
    arguments={"step": "int, 1 for the first step", "d_model": "int", "warmup": "int"},
    results={"rate": "number"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"min(": "max("},
            "the larger of the two is taken: the rate then falls first and rises later",
        ),
        Mistake(
            {"warmup**-1.5": "warmup**-0.5"},
            "the exponent of warmup is -1.5: both terms have to be equal at step = warmup",
        ),
        Mistake(
            {"step * warmup": "warmup"},
            "during the warm-up the rate is proportional to the step: the factor step is missing",
        ),
        Mistake({"d_model**-0.5 * ": ""}, "the factor D^-½ is missing"),
        Mistake({"d_model**-0.5": "d_model**0.5"}, "the sign of the exponent of D is wrong"),
        Mistake(
            {"step**-0.5": "step**-1"}, "after the warm-up the rate falls with 1/√step, not 1/step"
        ),
    ),
    hints=(
        "x^-½ is x**-0.5.",
        "Before step = warmup the second term is smaller, afterwards the first.",
    ),
)
