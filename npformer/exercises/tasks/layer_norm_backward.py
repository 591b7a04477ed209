"""The backward pass of layer normalisation."""

from npformer import reference
from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, Task, draw, gradients_of, sizes


def layer_norm_backward(dy, x, gain, mean, rstd):
    x_hat = (x - mean) * rstd
    dx_hat = dy * gain
    shift = dx_hat.mean(axis=-1, keepdims=True)
    scale = (dx_hat * x_hat).mean(axis=-1, keepdims=True)
    dx = rstd * (dx_hat - shift - x_hat * scale)
    dgain = (dy * x_hat).reshape(-1, len(gain)).sum(axis=0)
    dbias = dy.reshape(-1, len(gain)).sum(axis=0)
    return dx, dgain, dbias


def expected(dy, x, gain, mean, rstd):
    return gradients_of(lambda x, gain, bias: reference.layer_norm(x, gain, bias)[0])(
        dy, x, gain, 0 * gain
    )


def case(what, rng, *shape):
    x, gain = 2 * draw(rng, *shape) + 1, draw(rng, shape[-1])
    _, mean, rstd = reference.layer_norm(x, gain, 0 * gain)
    return Case(what, draw(rng, *shape), x, gain, mean, rstd)


def cases(rng):
    B, T, D = sizes(rng, 3, low=2)
    return [
        case("one row", rng, 1, 3),
        case("several rows", rng, 4, 3),
        case("as many rows as columns", rng, 3, 3),
        case("a batch", rng, B, T, D),
    ]


exercise = Task(
    answer=layer_norm_backward,
    title="the backward pass of layer normalisation",
    page="gradients/layer-norm",
    task="""
        The forward pass is  x̂ = (x - mean) · rstd,  y = x̂ · gain + bias,  with rstd = 1 / √(variance + eps) in each row.
        Given dy and what the forward pass has computed, return the gradients of x, gain and bias.

        mean and rstd depend on x too. That is what makes dx more than dy · gain · rstd.""",
    arguments={
        "dy": "(..., D) array",
        "x": "(..., D) array",
        "gain": "(D,) array",
        "mean": "(..., 1) array",
        "rstd": "(..., 1) array, 1 / standard deviation",
    },
    results={"dx": "(..., D) array", "dgain": "(D,) array", "dbias": "(D,) array"},
    expected=expected,
    cases=cases,
    mistakes=(
        Mistake(
            {
                "(dy * x_hat).reshape(-1, len(gain)).sum(axis=0)": "dy * x_hat",
                "dy.reshape(-1, len(gain)).sum(axis=0)": "dy",
            },
            "gain and bias are used by every row, so their gradients are sums over all rows",
        ),
        Mistake({".reshape(-1, len(gain)).sum(axis=0)": ".sum(axis=0)"}, explanations.MORE_AXES),
        Mistake(
            {".reshape(-1, len(gain)).sum(axis=0)": ".sum(axis=-1)"},
            "dgain and dbias are sums over the rows, not sums of each row",
        ),
        Mistake(
            {" - shift - x_hat * scale": ""},
            "mean and rstd are taken as constants, but they depend on x: two terms are missing in dx",
        ),
        Mistake({" - x_hat * scale": ""}, "the term of rstd is missing in dx: x̂ · mean(dx̂ · x̂)"),
        Mistake({" - shift": ""}, explanations.NO_MEAN_IN_DX),
        Mistake({"dx_hat = dy * gain": "dx_hat = dy"}, explanations.NO_GAIN_IN_DX),
        Mistake({"rstd * (dx_hat": "(dx_hat"}, "the factor rstd in front of dx is missing"),
        Mistake(
            {"x_hat * scale": "scale"},
            "the last term of dx is x̂ times a mean; the factor x̂ is missing",
        ),
        Mistake(
            {"(dx_hat * x_hat).mean": "(dx_hat * x_hat).sum", "dx_hat.mean": "dx_hat.sum"},
            explanations.SUMS_FOR_MEANS,
        ),
        Mistake({"(dy * x_hat).reshape": "(dy * x).reshape"}, explanations.X_FOR_X_HAT),
        Mistake(
            {"(dy * x_hat).reshape(-1, len(gain)).sum(axis=0)": "dy * x_hat"},
            "the gain is used by every row, so its gradient is the sum over all rows",
        ),
        Mistake(
            {"len(gain)).sum(axis=0)": "len(gain)).mean(axis=0)"},
            "the gradients of gain and bias are sums over the rows, not means",
        ),
    ),
    hints=(
        "First dx̂ = dy · gain. dgain and dbias are sums over all rows of dy · x̂ and of dy.",
        "A constant added to a row of x changes nothing, so dx of a row sums to 0: its mean is subtracted.",
        "Nor does a row grow if x - mean grows: dx is orthogonal to x̂, so x̂ · mean(dx̂ · x̂) is subtracted.",
        "dx = rstd · (dx̂ - mean(dx̂) - x̂ · mean(dx̂ · x̂)).",
    ),
)
