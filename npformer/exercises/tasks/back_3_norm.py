"""The third step back through a layer: the first normalisation, with its gain and bias."""

import numpy as np

from npformer import reference
from npformer.exercises import one_word
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def back_3_norm(dx, s, gain):
    deviation = s - s.mean()
    rstd = 1 / np.sqrt((deviation**2).mean() + 1e-5)
    s_hat = deviation * rstd
    ds_hat = dx * gain
    ds = rstd * (ds_hat - ds_hat.mean() - s_hat * (ds_hat * s_hat).mean())
    return ds, dx * s_hat, dx


def expected(dx, s, gain):
    return gradients_of(lambda s, gain, bias: reference.layer_norm(s, gain, bias)[0])(
        dx, s, gain, 0 * gain
    )


def cases(rng):
    (D,) = sizes(rng, 1, low=4)
    return [
        Case(one_word.SENTENCE, one_word.dx2, one_word.s1, np.ones(3)),
        Case("another word, with a gain", *draw(rng, 3, D)),
    ]


exercise = Task(
    answer=back_3_norm,
    title="one layer back, 3 (step 4 back): the first normalisation",
    page="gradients/residual",
    task="""
        x₂ = (s - mean(s)) / √(variance(s) + 10⁻⁵) · gain + bias, with s = e₂ + z₂. Given dx, of back_2, return ds, dgain and
        dbias. A sum gives its gradient to both of its terms, so ds is the gradient of z₂, and a part of that of e₂.""",
    arguments={"dx": "(D,) array", "s": "(D,) array, e₂ + z₂", "gain": "(D,) array"},
    results={"ds": "(D,) array", "dgain": "(D,) array", "dbias": "(D,) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {"ds_hat = dx * gain": "ds_hat = dx"},
            "the gain is missing in ds: it stands between ŝ and x₂",
        ),
        Mistake({" - ds_hat.mean()": ""}, "the term of the mean is missing in ds"),
        Mistake(
            {" - s_hat * (ds_hat * s_hat).mean()": ""}, "the term of the variance is missing in ds"
        ),
        Mistake({"dx * s_hat, dx": "dx * s, dx"}, "dgain uses s instead of the normalised ŝ"),
        Mistake(
            {"dx * s_hat, dx": "ds_hat * s_hat, dx"}, "dgain is dx · ŝ, without the gain itself"
        ),
        Mistake({"dx * s_hat, dx": "dx * s_hat, ds_hat"}, "dbias is dx itself"),
    ),
    hints=(
        "As back_1, with dŝ = dx · gain in place of dy, and ŝ in place of y.",
        "x₂ = ŝ · gain + bias, so dgain = dx · ŝ and dbias = dx.",
    ),
)
