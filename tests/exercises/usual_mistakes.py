"""Mistakes that learners usually make when they derive the gradients of a Transformer.

Each has the exercise, what is changed in the page's function, and words that a right explanation
has.
"""

DSCORES = "weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))"
LOSS_GRADIENT = "share * (np.exp(log_p) - wanted)"
NORM_GRADIENT = "rstd * (dx_hat - mean - x_hat * slope)"
RELU_GRADIENT = "np.where(h > 0, drelu, 0)"

USUAL = [
    # the normaliser of the whole array
    ("softmax", {"e.sum(axis=-1, keepdims=True)": "e.sum()"}, "each row has a sum of its own"),
    # the variance of a score, not its standard deviation
    ("attention", {"q.shape[-1] ** -0.5": "1 / q.shape[-1]"}, "divided by K, not by √K"),
    # the shape is right at once, the numbers are not
    (
        "split_heads",
        {
            ".reshape(B, T, n_heads, D // n_heads).transpose(0, 2, 1, 3)": (
                ".reshape(B, n_heads, T, D // n_heads)"
            )
        },
        "reshape alone mixes",
    ),
    (
        "layer_norm",
        {
            "1 / np.sqrt((deviation**2).mean(axis=-1, keepdims=True) + eps)": (
                "1 / (x.std(axis=-1, keepdims=True) + eps)"
            )
        },
        "eps belongs inside the root",
    ),
    # the mean of the loss is forgotten in its gradient
    (
        "cross_entropy",
        {LOSS_GRADIENT: "counted * (np.exp(log_p) - wanted)"},
        "not divided by the number of targets",
    ),
    # the derivative of the logarithm alone, with respect to p and not to the logits
    ("cross_entropy", {LOSS_GRADIENT: "-share * wanted / np.exp(log_p)"}, "with respect to p"),
    # the smoothing is in the loss, and forgotten in the gradient
    (
        "cross_entropy",
        {LOSS_GRADIENT: "share * (np.exp(log_p) - np.eye(V)[targets])"},
        "label_smoothing is not used in",
    ),
    # padding is left out of the loss only
    ("cross_entropy", {LOSS_GRADIENT: "(np.exp(log_p) - wanted) / counted.sum()"}, "padding"),
    (
        "linear",
        {'dy @ params["weight"].T': 'dy @ params["weight"]'},
        "the weight is not transposed",
    ),
    ("linear", {"x_rows.T @ dy_rows": "dy_rows.T @ x_rows"}, "shape of W"),
    # a mean over the rows, as of a loss
    ("linear", {"x_rows.T @ dy_rows": "x_rows.T @ dy_rows / len(x_rows)"}, "the sum, not the mean"),
    ("linear", {"dy_rows.sum(axis=0)": "dy_rows.mean(axis=0)"}, "the sum, not the mean"),
    # mean and variance are taken to be constants
    ("layer_norm_backward", {NORM_GRADIENT: "rstd * dx_hat"}, "mean and variance depend on x too"),
    ("layer_norm_backward", {NORM_GRADIENT: "rstd * (dx_hat - mean)"}, "term of the variance"),
    ("layer_norm_backward", {'dx_hat = dy * params["gain"]': "dx_hat = dy"}, "the gain is missing"),
    ("layer_norm_backward", {"(dy * x_hat).sum(axis=rows)": "(dy * x).sum(axis=rows)"}, "dgain"),
    # the 1/2 of the root is forgotten, which the 2 of the square would cancel
    (
        "layer_norm_backward",
        {NORM_GRADIENT: "rstd * (dx_hat - mean - 2 * x_hat * slope)"},
        "factor 2",
    ),
    # the 1/D of mean and variance is forgotten
    (
        "layer_norm_backward",
        {"(dx_hat * x_hat).mean": "(dx_hat * x_hat).sum", "dx_hat.mean": "dx_hat.sum"},
        "sums are subtracted where means",
    ),
    (
        "attention_backward",
        {DSCORES: "weights * dweights"},
        "a weight depends on all scores of its row",
    ),
    (
        "attention_backward",
        {DSCORES: "dweights * weights * (1 - weights)"},
        "with respect to its own score",
    ),
    (
        "attention_backward",
        {"scale * dscores @ k, scale * dscores.": "dscores @ k, dscores."},
        "factor 1/√K is missing",
    ),
    # the scale is forgotten in one of the two
    (
        "attention_backward",
        {"scale * dscores.swapaxes": "dscores.swapaxes"},
        "1/√K is missing in dk",
    ),
    ("attention_backward", {"weights.swapaxes(-1, -2) @ dout": "weights @ dout"}, "transpos"),
    ("feed_forward", {RELU_GRADIENT: "drelu"}, "relu's backward pass is missing"),
    # relu itself in place of its derivative
    ("feed_forward", {RELU_GRADIENT: "drelu * np.maximum(h, 0)"}, "relu itself"),
    ("feed_forward", {RELU_GRADIENT: "np.maximum(drelu, 0)"}, "the sign of h that decides"),
    (
        "self_attention",
        {"np.concatenate(dqkv, axis=-1)": "np.concatenate(dqkv[::-1], axis=-1)"},
        "in another order than q, k, v",
    ),
    ("encoder_layer", {"return dsum + dattended": "return dattended"}, "x0 is used twice"),
    # the gradient of the layer goes into the feed-forward layer past the normalisation
    ("encoder_layer", {"feed_backward(dsum)": "feed_backward(dx2)"}, "normalisation"),
    (
        "transformer",
        {"dmemory += dmemory_of_layer": "dmemory = dmemory_of_layer"},
        "every decoder layer reads",
    ),
]

# Thirty others.
OTHERS = [
    ("softmax", {"x - x.max(axis=-1, keepdims=True)": "x"}, "overflows"),
    ("attention", {"scores, -np.inf": "-np.inf, scores"}, "the wrong way round"),
    (
        "attention",
        {"softmax(np.where(keep_mask, scores, -np.inf))": "softmax(scores) * keep_mask"},
        "after softmax",
    ),
    ("merge_heads", {".transpose(0, 2, 1, 3)": ""}, "reshape alone mixes"),
    (
        "layer_norm",
        {"(deviation**2).mean(axis=-1, keepdims=True)": "x.var(axis=-1, keepdims=True, ddof=1)"},
        "D - 1",
    ),
    ("cross_entropy", {LOSS_GRADIENT: "share * (wanted - np.exp(log_p))"}, "wrong sign"),
    ("cross_entropy", {LOSS_GRADIENT: "share * np.exp(log_p)"}, "wanted"),
    (
        "cross_entropy",
        {LOSS_GRADIENT: "counted / counted.size * (np.exp(log_p) - wanted)"},
        "padding",
    ),
    ("linear", {"dy_rows.sum(axis=0)": "dy"}, "sum of all rows"),
    ("linear", {"x_rows.T @ dy_rows": "x.swapaxes(-1, -2) @ dy"}, "one dW for each sentence"),
    ("layer_norm_backward", {NORM_GRADIENT: "rstd * (dx_hat + mean + x_hat * slope)"}, "sign"),
    # the gain is in one place only
    ("layer_norm_backward", {"(dx_hat * x_hat).mean": "(dy * x_hat).mean"}, "gain"),
    (
        "layer_norm_backward",
        {NORM_GRADIENT: "rstd * (dx_hat - mean - x_hat * slope) * params['gain']"},
        "gain",
    ),
    (
        "layer_norm_backward",
        {NORM_GRADIENT: "dx_hat - mean - x_hat * slope"},
        "1/√(variance + eps)",
    ),
    ("layer_norm_backward", {NORM_GRADIENT: "rstd * (dx_hat - mean - deviation * slope)"}, "x̂"),
    ("layer_norm_backward", {"(dy * x_hat).sum(axis=rows)": "(dy * x_hat).mean(axis=rows)"}, "sum"),
    (
        "attention_backward",
        {"(dweights * weights).sum(axis=-1": "(dweights * weights).sum(axis=-2"},
        "over the keys",
    ),
    ("attention_backward", {DSCORES: DSCORES.removeprefix("weights * ")}, "factor weights"),
    (
        "attention_backward",
        {DSCORES: "weights * ((dweights * weights).sum(axis=-1, keepdims=True) - dweights)"},
        "sign",
    ),
    ("attention_backward", {"scale * dscores @ k": "dscores @ k"}, "1/√K is missing in dq"),
    (
        "attention_backward",
        {"dscores @ k, scale * dscores.": "dscores @ q, scale * dscores."},
        "dq",
    ),
    ("attention_backward", {"dv = weights.": "dv = dweights."}, "the weights"),
    ("attention_backward", {DSCORES: DSCORES.replace("sum", "mean")}, "sum"),
    ("feed_forward", {"h > 0": "h >= 0"}, "exactly 0"),
    ("self_attention", {"np.concatenate(dqkv, axis=-1)": "sum(dqkv)"}, "side by side"),
    ("encoder_layer", {"norm1_backward(dsum + dfed)": "norm1_backward(dfed)"}, "x1 is used twice"),
    ("encoder_layer", {"return dsum + dattended": "return dx2 + dattended"}, "x0 + attended"),
    ("encoder_layer", {"attend_backward(dsum)": "attend_backward(dx2)"}, "normalisation"),
    ("transformer", {"embed_src_backward(dmemory)": "embed_src_backward(dx)"}, "source"),
    (
        "adam_step",
        {" / (1 - beta1**step)": "", " / (1 - beta2**step)": ""},
        "bias correction is missing",
    ),
]
