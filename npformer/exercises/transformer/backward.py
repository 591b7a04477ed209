"""Exercises 7 to 9: the backward passes."""

import numpy as np

from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, draw, sizes
from npformer.exercises.transformer.forward import ROOT_OF_INT, attention_cases, norm_cases
from npformer.exercises.transformer.page import part


def linear_params(weight, bias):
    """Parameters of a linear map."""
    return {"weight": np.array(weight, dtype=float), "bias": np.array(bias, dtype=float)}


def linear_cases(rng):
    """The page's example, rows, a batch."""
    B, T, D, F = sizes(rng, 4, low=2)
    random = lambda *shape: linear_params(draw(rng, *shape), draw(rng, shape[-1]))
    return [
        Case(
            "two numbers",
            linear_params([[1], [2]], [0.5]),
            np.array([[3.0, 4.0]]),
            np.array([[1.0]]),
        ),
        Case("several rows", random(D, F), draw(rng, T, D), draw(rng, T, F)),
        Case("a square weight", random(D, D), draw(rng, D, D), draw(rng, D, D)),
        Case("a batch", random(D, F), draw(rng, B, T, D), draw(rng, B, T, F)),
    ]


LINEAR = part(
    name="linear",
    cases=linear_cases,
    mistakes=(
        Mistake({' + params["bias"]': ""}, "the bias is missing"),
        Mistake(
            {'dy @ params["weight"].T': 'dy @ params["weight"]'},
            explanations.NOT_TRANSPOSED,
            without_formula="in dx the weight is not transposed: dx_i gets a part of every dy_j, by the factor W_ij",
        ),
        Mistake({"x_rows.T @ dy_rows": "x.T @ dy"}, explanations.AXES_OF_A_BATCH),
        Mistake(
            {"x_rows.T @ dy_rows": "(x_rows.T @ dy_rows).T"},
            "dW has the shape of W: xᵀ dy, not dyᵀ x",
            without_formula="dW is transposed: it has the shape of W",
        ),
        Mistake(
            {"dy_rows.sum(axis=0)": "dy_rows.mean(axis=0)"},
            "the bias is used by every row, so its gradient is the sum, not the mean",
        ),
        Mistake(
            {"dy_rows.sum(axis=0)": "dy"},
            "the bias is used by every row, so its gradient is the sum of all rows of dy",
        ),
        Mistake(
            {"x_rows.T @ dy_rows": "x.swapaxes(-1, -2) @ dy"},
            "in a batch this is one dW for each sentence: their sum is wanted",
        ),
        Mistake({"dy_rows.sum(axis=0)": "dy.sum(axis=0)"}, explanations.MORE_AXES),
        Mistake(
            {"x_rows.T @ dy_rows": "x_rows.T @ dy_rows / len(x_rows)"},
            "the weight is used by every row, so its gradient is the sum, not the mean",
        ),
        Mistake(
            {"dy_rows.sum(axis=0)": "dy_rows.sum(axis=1)"},
            "the gradient of the bias is a sum over the rows, axis 0, not the sum of each row",
        ),
    ),
    gradients=("dx", "grads"),
    title="a linear map, forward and backward",
    page="gradients/linear",
    task="""
        params: {"weight": (D, F), "bias": (F,)}, x (..., D) -> y = x W + b (..., F), and the function backward.

        backward(dy), dy (..., F), returns dx = dy Wᵀ and grads = {"weight": dW, "bias": db}. Weight and bias are used by
        every row of x, so dW = xᵀ dy and db are sums over all rows, whatever axes there are before the last.""",
    hints=(
        "x.reshape(-1, x.shape[-1]) makes a matrix of all rows of x; the same for dy.",
        'dW = x_rows.T @ dy_rows, db = dy_rows.sum(axis=0), dx = dy @ params["weight"].T.',
    ),
    hint_for={"not transposed|the shape of W|used by every row|dx|grads": 2},
)

NO_GAIN_IN_A_MEAN = "the gain is missing in one of the means of dx: it belongs to dy everywhere"

LAYER_NORM_BACKWARD = part(
    name="layer_norm_backward",
    function="layer_norm",
    cases=lambda rng: norm_cases(rng, 1),
    mistakes=(
        Mistake(
            {"dx_hat - mean - x_hat * slope": "dx_hat"},
            "mean and variance depend on x too: two terms are missing in dx",
        ),
        Mistake(
            {" - x_hat * slope": ""},
            "the term of the variance is missing in dx: x̂ · mean(dx̂ · x̂)",
            without_formula="the term of the variance is missing in dx: it depends on every entry of its row",
        ),
        Mistake(
            {"dx_hat - mean - ": "dx_hat - "},
            explanations.NO_MEAN_IN_DX,
            without_formula="the term of the mean is missing in dx: the mean depends on every entry of its row",
        ),
        Mistake(
            {'dx_hat = dy * params["gain"]': "dx_hat = dy"},
            explanations.NO_GAIN_IN_DX,
            without_formula="the gain is missing in dx: x̂ is multiplied by it",
        ),
        Mistake(
            {"rstd * (dx_hat": "(dx_hat"},
            "the factor 1/√(variance + eps) in front of dx is missing",
        ),
        Mistake(
            {"(dx_hat * x_hat).mean": "(dx_hat * x_hat).sum", "dx_hat.mean": "dx_hat.sum"},
            explanations.SUMS_FOR_MEANS,
        ),
        Mistake(
            {"(dy * x_hat).sum(axis=rows)": "(dy * x).sum(axis=rows)"}, explanations.X_FOR_X_HAT
        ),
        Mistake({"tuple(range(dy.ndim - 1))": "0"}, explanations.MORE_AXES),
        Mistake(
            {"tuple(range(dy.ndim - 1))": "-1"},
            "the gradients of gain and bias are sums over the rows, not sums of each row",
        ),
        Mistake(
            {
                "rstd * (dx_hat - mean - x_hat * slope)": "rstd * (dx_hat - mean - 2 * x_hat * slope)"
            },
            "the term of the variance has a factor 2 too much in dx: that of the square and the 1/2 of the root cancel",
        ),
        Mistake(
            {
                "rstd * (dx_hat - mean - x_hat * slope)": "rstd * (dx_hat - mean - 0.5 * x_hat * slope)"
            },
            "the term of the variance has a factor 1/2 too much in dx: the square of the deviation gives a 2",
        ),
        Mistake(
            {"rstd * (dx_hat - mean - x_hat * slope)": "rstd * (dx_hat + mean + x_hat * slope)"},
            "the terms of mean and variance have the wrong sign in dx",
        ),
        Mistake(
            {"rstd * (dx_hat - mean - x_hat * slope)": "rstd * (dx_hat - mean + x_hat * slope)"},
            "the term of the variance has the wrong sign in dx",
        ),
        Mistake(
            {
                "rstd * (dx_hat - mean - x_hat * slope)": "rstd * (dx_hat - mean - deviation * slope)"
            },
            "the term of the variance in dx has a factor 1/√(variance + eps) too little: its x̂ has one, and all of dx has another",
        ),
        Mistake(
            {
                "rstd * (dx_hat - mean - x_hat * slope)": 'rstd * params["gain"] * (dx_hat - mean - x_hat * slope)'
            },
            "the gain occurs twice in dx: dx̂ = dy · gain has it already",
            without_formula="the gain occurs twice in dx",
        ),
        Mistake(
            {"dx_hat = dy *": "dx_hat = dy; dy_hat = dy *", "rstd * (dx_hat": "rstd * (dy_hat"},
            "the gain is missing in the two means of dx: they are means of dy · gain, too",
        ),
        Mistake(
            {"(dx_hat * x_hat).mean": "(dy * x_hat).mean"},
            NO_GAIN_IN_A_MEAN,
        ),
        Mistake(
            {"dx_hat.mean": "dy.mean"},
            NO_GAIN_IN_A_MEAN,
        ),
        Mistake(
            {
                'dx_hat = dy * params["gain"]': "dx_hat = dy",
                "rstd * (dx_hat - mean - x_hat * slope)": 'rstd * params["gain"] * (dx_hat - mean - x_hat * slope)',
            },
            "the gain is multiplied last in dx: it belongs to dy, before the means",
        ),
        Mistake(
            {"(dy * x_hat).sum(axis=rows)": "(dy * x_hat).mean(axis=rows)"},
            "the gradient of the gain is the sum over the rows, not the mean",
        ),
        Mistake(
            {"dy.sum(axis=rows)": "dy.mean(axis=rows)"},
            "the gradient of the bias is the sum over the rows, not the mean",
        ),
        Mistake(
            {"rstd * (dx_hat - mean - x_hat * slope)": "rstd**2 * (dx_hat - mean - x_hat * slope)"},
            "the factor 1/√(variance + eps) occurs twice in dx",
        ),
        Mistake(
            {"rstd * (dx_hat - mean - x_hat * slope)": "(dx_hat - mean - x_hat * slope) / rstd"},
            "rstd is one over the root already: dx is multiplied by it, not divided",
        ),
        Mistake(
            {"rstd * (dx_hat - mean - x_hat * slope)": "rstd * (dx_hat - mean - slope)"},
            "x̂ is missing in the term of the variance in dx: it occurs in the mean and in front of it",
        ),
        Mistake(
            {"(dy * x_hat).sum(axis=rows)": "dx_hat.sum(axis=rows)"},
            "the gradient of the gain contains x̂, by which the gain is multiplied",
        ),
        Mistake(
            {'"bias": dy.sum(axis=rows)': '"bias": dx_hat.sum(axis=rows)'},
            "the bias is added after the gain, which its gradient does not contain",
        ),
    ),
    gradients=("dx", "grads"),
    title="layer normalisation, backward",
    page="gradients/layer-norm",
    task="""
        backward(dy), dy (..., D), returns dx (..., D) and grads = {"gain": (D,), "bias": (D,)}, with x̂ and
        rstd = 1 / √(variance + eps) of the forward pass, which backward remembers:

            dx̂ = dy · gain;  dx = rstd · (dx̂ - mean(dx̂) - x̂ · mean(dx̂ · x̂)), with the means of each row

        The gradients of gain and bias are the sums of dy · x̂ and of dy over all axes but the last.""",
    hints=(
        "The means need axis=-1 and keepdims=True.",
        "rows = tuple(range(dy.ndim - 1)) are all axes but the last, and .sum(axis=rows) sums over them.",
    ),
    hint_for={"sum over|sums over|grads": 2},
)

TRANSPOSED = "a transposition is missing: dv = weightsᵀ dout, dk = dscoresᵀ q / √K"
TRANSPOSED_IN_WORDS = "a transposition is missing: a key, and a value, gets a sum over the queries"

ATTENTION_BACKWARD = part(
    name="attention_backward",
    function="attention",
    cases=lambda rng: attention_cases(rng, 1),
    mistakes=(
        Mistake(
            {" - (dweights * weights).sum(axis=-1, keepdims=True)": ""},
            "the sum in softmax's backward pass is missing: a weight depends on all scores of its row",
        ),
        Mistake(
            {"dq, dk = scale * dscores @ k, scale * dscores": "dq, dk = dscores @ k, dscores"},
            explanations.NO_FACTOR_IN_DQ_AND_DK,
        ),
        Mistake(
            {
                "(dweights - (dweights * weights).sum(axis=-1, keepdims=True))": "dweights * (1 - weights)"
            },
            explanations.OWN_SCORE_ONLY,
        ),
        Mistake(
            {"weights * (dweights -": "(dweights -"},
            "the factor weights of softmax's backward pass is missing",
        ),
        Mistake(
            {"dv = weights.swapaxes(-1, -2) @ dout": "dv = dweights.swapaxes(-1, -2) @ dout"},
            "dv = weightsᵀ dout, with the weights themselves",
            without_formula="dv has the gradient of the weights where the weights belong",
        ),
        Mistake(
            {"dv = weights.swapaxes(-1, -2) @ dout": "dv = dscores.swapaxes(-1, -2) @ dout"},
            "dv has the gradient of the scores where the weights belong",
        ),
        Mistake(
            {"weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))": "dweights"},
            "softmax's backward pass is missing: dweights is the gradient of the weights, not of the scores",
        ),
        Mistake(
            {
                "(dweights * weights).sum(axis=-1, keepdims=True)": "(dweights * weights).sum(axis=-2, keepdims=True)"
            },
            "the sum of softmax's backward pass is over the keys, the last axis",
        ),
        Mistake(
            {
                "scale * dscores @ k, scale * dscores.swapaxes(-1, -2) @ q": "scale * dscores @ k, scale * dscores @ q"
            },
            TRANSPOSED,
            without_formula=TRANSPOSED_IN_WORDS,
        ),
        Mistake(
            {"weights.swapaxes(-1, -2) @ dout": "weights @ dout"},
            TRANSPOSED,
            without_formula=TRANSPOSED_IN_WORDS,
        ),
        Mistake({"scale * dscores @ k": "dscores @ k"}, "the factor 1/√K is missing in dq"),
        Mistake(
            {"scale * dscores.swapaxes": "dscores.swapaxes"}, "the factor 1/√K is missing in dk"
        ),
        Mistake(
            {"scale * dscores @ k, scale *": "scale**2 * dscores @ k, scale**2 *"},
            "the factor 1/√K occurs twice in dq and dk",
        ),
        Mistake(
            {
                "dscores @ k, scale * dscores.swapaxes(-1, -2) @ q": "dscores @ q, scale * dscores.swapaxes(-1, -2) @ k"
            },
            "q and k are exchanged: dq contains k, and dk contains q",
            without_formula="q and k are exchanged: what multiplies q in the scores is what occurs in dq",
        ),
        Mistake(
            {"(dweights * weights).sum(": "(dweights * weights).mean("},
            "this is a mean where softmax's backward pass has a sum over the keys",
        ),
        Mistake(
            {"(dweights * weights).sum(": "dweights.sum("},
            "the sum of softmax's backward pass is that of dweights · weights",
        ),
        Mistake(
            {
                "weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))": "weights * (1 - weights)"
            },
            "this is a derivative of softmax, without the gradient dweights that comes back",
        ),
        Mistake(
            {
                "weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))": "dweights - weights * dweights.sum(axis=-1, keepdims=True)"
            },
            "this is the backward pass of log softmax, not of softmax",
        ),
        Mistake(
            {
                "dq, dk = scale * dscores @ k, scale * dscores": "dq, dk = dscores @ k / scale, 1 / scale * dscores"
            },
            "dq and dk are multiplied by √K where they are divided by it",
        ),
    ),
    gradients=("dq", "dk", "dv"),
    float64_from=ROOT_OF_INT,
    title="attention, backward",
    page="gradients/attention",
    task="""
        backward(dout), dout (B, H, T, K), the gradient of y, returns dq, dk, dv. Undo the steps in reverse order:

            dweights = dout vᵀ,  dv = weightsᵀ dout              of  y = weights v
            dscores = weights · (dweights - Σ dweights · weights)  of softmax, with the sum of each row
            dq = dscores k / √K,  dk = dscoresᵀ q / √K            of  scores = q kᵀ / √K

        The mask does not occur: where it is False, the weight is 0.""",
    hints=(
        "v.swapaxes(-1, -2) is vᵀ for each head of each sentence.",
        "The sum needs axis=-1 and keepdims=True: (dweights * weights).sum(axis=-1, keepdims=True).",
    ),
    hint_for={"transposition": 1, "softmax|of a weight|axis": 2},
)

EXERCISES = (LINEAR, LAYER_NORM_BACKWARD, ATTENTION_BACKWARD)
