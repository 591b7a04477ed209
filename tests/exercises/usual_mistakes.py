"""Wrong answers that learners usually write, each with words of the right explanation.

A row has the key of the exercise, what is changed in its answer, or the whole function, and the
words; None where the checker has no name for the mistake, and must not find a wrong one.
"""

DSCORES = "weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))"
LOSS_GRADIENT = "share * (np.exp(log_p) - wanted)"
NORM_GRADIENT = "rstd * (dx_hat - mean - x_hat * slope)"
RELU_GRADIENT = "np.where(h > 0, drelu, 0)"

# Thirty in the exercises of `--derive`.
USUAL = [
    # the normaliser of the whole array
    (
        "derive/softmax",
        {"e.sum(axis=-1, keepdims=True)": "e.sum()"},
        "each row has a sum of its own",
    ),
    # the variance of a score, not its standard deviation
    ("derive/attention", {"q.shape[-1] ** -0.5": "1 / q.shape[-1]"}, "divided by K, not by √K"),
    # the shape is right at once, the numbers are not
    (
        "derive/split_heads",
        {
            ".reshape(B, T, n_heads, D // n_heads).transpose(0, 2, 1, 3)": (
                ".reshape(B, n_heads, T, D // n_heads)"
            )
        },
        "reshape alone mixes",
    ),
    (
        "derive/layer_norm",
        {
            "1 / np.sqrt((deviation**2).mean(axis=-1, keepdims=True) + eps)": (
                "1 / (x.std(axis=-1, keepdims=True) + eps)"
            )
        },
        "eps belongs inside the root",
    ),
    # the mean of the loss is forgotten in its gradient
    (
        "derive/cross_entropy",
        {LOSS_GRADIENT: "counted * (np.exp(log_p) - wanted)"},
        "not divided by the number of targets",
    ),
    # the derivative of the logarithm alone, with respect to p and not to the logits
    (
        "derive/cross_entropy",
        {LOSS_GRADIENT: "-share * wanted / np.exp(log_p)"},
        "with respect to p",
    ),
    # the smoothing is in the loss, and forgotten in the gradient
    (
        "derive/cross_entropy",
        {LOSS_GRADIENT: "share * (np.exp(log_p) - np.eye(V)[targets])"},
        "label_smoothing is not used in",
    ),
    # padding is left out of the loss only
    (
        "derive/cross_entropy",
        {LOSS_GRADIENT: "(np.exp(log_p) - wanted) / counted.sum()"},
        "padding",
    ),
    (
        "derive/linear",
        {'dy @ params["weight"].T': 'dy @ params["weight"]'},
        "the weight is not transposed",
    ),
    ("derive/linear", {"x_rows.T @ dy_rows": "dy_rows.T @ x_rows"}, "shape of W"),
    # a mean over the rows, as of a loss
    (
        "derive/linear",
        {"x_rows.T @ dy_rows": "x_rows.T @ dy_rows / len(x_rows)"},
        "the sum, not the mean",
    ),
    ("derive/linear", {"dy_rows.sum(axis=0)": "dy_rows.mean(axis=0)"}, "the sum, not the mean"),
    # mean and variance are taken to be constants
    (
        "derive/layer_norm_backward",
        {NORM_GRADIENT: "rstd * dx_hat"},
        "mean and variance depend on x too",
    ),
    (
        "derive/layer_norm_backward",
        {NORM_GRADIENT: "rstd * (dx_hat - mean)"},
        "term of the variance",
    ),
    (
        "derive/layer_norm_backward",
        {'dx_hat = dy * params["gain"]': "dx_hat = dy"},
        "the gain is missing",
    ),
    (
        "derive/layer_norm_backward",
        {"(dy * x_hat).sum(axis=rows)": "(dy * x).sum(axis=rows)"},
        "dgain",
    ),
    # the 1/2 of the root is forgotten, which the 2 of the square would cancel
    (
        "derive/layer_norm_backward",
        {NORM_GRADIENT: "rstd * (dx_hat - mean - 2 * x_hat * slope)"},
        "factor 2",
    ),
    # the 1/D of mean and variance is forgotten
    (
        "derive/layer_norm_backward",
        {"(dx_hat * x_hat).mean": "(dx_hat * x_hat).sum", "dx_hat.mean": "dx_hat.sum"},
        "sums are subtracted where means",
    ),
    (
        "derive/attention_backward",
        {DSCORES: "weights * dweights"},
        "a weight depends on all scores of its row",
    ),
    (
        "derive/attention_backward",
        {DSCORES: "dweights * weights * (1 - weights)"},
        "with respect to its own score",
    ),
    (
        "derive/attention_backward",
        {"scale * dscores @ k, scale * dscores.": "dscores @ k, dscores."},
        "factor 1/√K is missing",
    ),
    # the scale is forgotten in one of the two
    (
        "derive/attention_backward",
        {"scale * dscores.swapaxes": "dscores.swapaxes"},
        "1/√K is missing in dk",
    ),
    (
        "derive/attention_backward",
        {"weights.swapaxes(-1, -2) @ dout": "weights @ dout"},
        "transpos",
    ),
    ("derive/feed_forward", {RELU_GRADIENT: "drelu"}, "relu's backward pass is missing"),
    # relu itself in place of its derivative
    ("derive/feed_forward", {RELU_GRADIENT: "drelu * np.maximum(h, 0)"}, "relu itself"),
    ("derive/feed_forward", {RELU_GRADIENT: "np.maximum(drelu, 0)"}, "the sign of h that decides"),
    (
        "derive/self_attention",
        {"np.concatenate(dqkv, axis=-1)": "np.concatenate(dqkv[::-1], axis=-1)"},
        "in another order than q, k, v",
    ),
    ("derive/encoder_layer", {"return dsum + dattended": "return dattended"}, "x0 is used twice"),
    # the gradient of the layer goes into the feed-forward layer past the normalisation
    ("derive/encoder_layer", {"feed_backward(dsum)": "feed_backward(dx2)"}, "normalisation"),
    (
        "derive/transformer",
        {"dmemory += dmemory_of_layer": "dmemory = dmemory_of_layer"},
        "every decoder layer reads",
    ),
]

# Thirty others there, by an author who did not know the explanations.
OTHERS = [
    ("derive/softmax", {"x - x.max(axis=-1, keepdims=True)": "x"}, "overflows"),
    ("derive/attention", {"scores, -np.inf": "-np.inf, scores"}, "the wrong way round"),
    (
        "derive/attention",
        {"softmax(np.where(keep_mask, scores, -np.inf))": "softmax(scores) * keep_mask"},
        "after softmax",
    ),
    ("derive/merge_heads", {".transpose(0, 2, 1, 3)": ""}, "reshape alone mixes"),
    (
        "derive/layer_norm",
        {"(deviation**2).mean(axis=-1, keepdims=True)": "x.var(axis=-1, keepdims=True, ddof=1)"},
        "D - 1",
    ),
    ("derive/cross_entropy", {LOSS_GRADIENT: "share * (wanted - np.exp(log_p))"}, "wrong sign"),
    ("derive/cross_entropy", {LOSS_GRADIENT: "share * np.exp(log_p)"}, "wanted"),
    (
        "derive/cross_entropy",
        {LOSS_GRADIENT: "counted / counted.size * (np.exp(log_p) - wanted)"},
        "padding",
    ),
    ("derive/linear", {"dy_rows.sum(axis=0)": "dy"}, "sum of all rows"),
    (
        "derive/linear",
        {"x_rows.T @ dy_rows": "x.swapaxes(-1, -2) @ dy"},
        "one dW for each sentence",
    ),
    (
        "derive/layer_norm_backward",
        {NORM_GRADIENT: "rstd * (dx_hat + mean + x_hat * slope)"},
        "sign",
    ),
    # the gain is in one place only
    ("derive/layer_norm_backward", {"(dx_hat * x_hat).mean": "(dy * x_hat).mean"}, "gain"),
    (
        "derive/layer_norm_backward",
        {NORM_GRADIENT: "rstd * (dx_hat - mean - x_hat * slope) * params['gain']"},
        "gain",
    ),
    (
        "derive/layer_norm_backward",
        {NORM_GRADIENT: "dx_hat - mean - x_hat * slope"},
        "1/√(variance + eps)",
    ),
    (
        "derive/layer_norm_backward",
        {NORM_GRADIENT: "rstd * (dx_hat - mean - deviation * slope)"},
        "x̂",
    ),
    (
        "derive/layer_norm_backward",
        {"(dy * x_hat).sum(axis=rows)": "(dy * x_hat).mean(axis=rows)"},
        "sum",
    ),
    (
        "derive/attention_backward",
        {"(dweights * weights).sum(axis=-1": "(dweights * weights).sum(axis=-2"},
        "over the keys",
    ),
    ("derive/attention_backward", {DSCORES: DSCORES.removeprefix("weights * ")}, "factor weights"),
    (
        "derive/attention_backward",
        {DSCORES: "weights * ((dweights * weights).sum(axis=-1, keepdims=True) - dweights)"},
        "sign",
    ),
    ("derive/attention_backward", {"scale * dscores @ k": "dscores @ k"}, "1/√K is missing in dq"),
    (
        "derive/attention_backward",
        {"dscores @ k, scale * dscores.": "dscores @ q, scale * dscores."},
        None,
    ),
    ("derive/attention_backward", {"dv = weights.": "dv = dweights."}, "the weights"),
    ("derive/attention_backward", {DSCORES: DSCORES.replace("sum", "mean")}, "sum"),
    ("derive/feed_forward", {"h > 0": "h >= 0"}, "exactly 0"),
    ("derive/self_attention", {"np.concatenate(dqkv, axis=-1)": "sum(dqkv)"}, "side by side"),
    (
        "derive/encoder_layer",
        {"norm1_backward(dsum + dfed)": "norm1_backward(dfed)"},
        "x1 is used twice",
    ),
    (
        "derive/encoder_layer",
        {"return dsum + dattended": "return dx2 + dattended"},
        "x0 + attended",
    ),
    ("derive/encoder_layer", {"attend_backward(dsum)": "attend_backward(dx2)"}, "normalisation"),
    ("derive/transformer", {"embed_src_backward(dmemory)": "embed_src_backward(dx)"}, "source"),
    (
        "derive/adam_step",
        {" / (1 - beta1**step)": "", " / (1 - beta2**step)": ""},
        "bias correction is missing",
    ),
]

# What else was seen.
ROWS = "keepdims=True is missing: without it the result of a sum, mean or maximum loses its axis"
OWN_SCORE = "this is the derivative of a weight with respect to its own score"
ORDER = "the results come in another order"
VARIANCE = "(deviation**2).mean(axis=-1, keepdims=True)"
MASK = "np.tri(x.shape[1], dtype=bool)"
SQUARE = "(1 - beta2) * g * g"
MORE = [
    ("build/softmax", {", keepdims=True": ""}, ROWS),
    ("build/softmax", {"e.sum(axis=-1, keepdims=True)": "e.sum(axis=-1)"}, ROWS),
    ("build/softmax", {"axis=-1": "axis=1"}, "the axis of a sum, mean or maximum is axis 1"),
    ("build/linear", {"x_rows.T @ dy_rows": "x.T @ dy"}, "with a batch, x.T reverses all axes"),
    ("build/layer_norm", {VARIANCE: "(deviation**2).mean()"}, "axis=-1 of a sum, mean"),
    ("build/layer_norm", {VARIANCE: "np.var(x)"}, "this is the variance of the whole"),
    ("build/attention_backward", {DSCORES: "weights * dweights * (1 - weights)"}, OWN_SCORE),
    (
        "build/attention_backward",
        {"return dq, dk, dv": "return dv, dk, dq"},
        f"{ORDER}: dq, dv are what dv, dq should be",
    ),
    (
        "build/attention_backward",
        {"return dq, dk, dv": "return dv, dq, dk"},
        f"{ORDER}: dq, dk, dv are what dv, dq, dk should be",
    ),
    (
        "build/self_attention",
        {
            "q, k, v = (split_heads(part, n_heads) for part in np.split(qkv, 3, axis=-1))": (
                "q, k, v = np.split(split_heads(qkv, n_heads), 3, axis=-1)"
            )
        },
        "first split qkv into q, k and v",
    ),
    # the axis of another function is not that of a sum
    ("build/self_attention", {"np.split(qkv, 3, axis=-1)": "np.split(qkv, 3, axis=1)"}, None),
    ("build/encoder_layer", {"dsum + d": "d"}, "x0 and x1 are used twice"),
    (
        "build/feed_forward",
        {"h, hidden_backward =": "h ="},
        "h holds two results: write h, h_backward",
    ),
    ("build/attention", {"q.shape[-1] **": "q.shape[1] **"}, None),
    ("build/attention", {"q.shape[-1] **": "q.size **"}, None),
    ("build/split_heads", {".transpose(0, 2, 1, 3)": ".transpose(1, 0, 2, 3)"}, "the axes 0 and 1"),
    ("build/split_heads", {".transpose(0, 2, 1, 3)": ".swapaxes(1, 3)"}, None),
    # of the square root of a negative number nothing but NaN comes
    ("build/adam_step", {SQUARE: "(1 - beta2) * g - 2"}, None),
    ("build/adam_step", {SQUARE: "(1 - beta2) * -g"}, None),
    ("build/adam_step", {SQUARE: "-(1 - beta2) * g * g"}, None),
    ("attention", {"np.sqrt(K)": "np.sqrt(len(k))"}, None),
    ("attention", {"np.sqrt(K)": "np.sqrt(v.shape[-1])"}, None),
    ("split_heads", {".swapaxes(-2, -3)": ".swapaxes(1, 2)"}, None),
    # a position that does not see itself is not the mask the other way round
    (
        "derive/transformer",
        {
            "np.tri(tgt_in.shape[1], dtype=bool)": (
                "np.tril(np.ones((tgt_in.shape[1],) * 2, dtype=bool), k=-1)"
            )
        },
        "each position sees itself",
    ),
    # masks that are right for two positions
    (
        "gpt/self_attention",
        {MASK: "np.eye(x.shape[1], dtype=bool) | np.eye(x.shape[1], k=-1, dtype=bool)"},
        "only itself and the one before",
    ),
    (
        "gpt/self_attention",
        {MASK: "np.tril(np.ones((x.shape[1], x.shape[1]), dtype=bool), k=1)"},
        "also sees the next one",
    ),
    (
        "gpt/self_attention",
        {MASK: "np.ones((x.shape[1], x.shape[1]), dtype=bool)"},
        "there is no causal mask",
    ),
    # it sees more of the future, the later it is
    (
        "gpt/self_attention",
        {MASK: "np.arange(x.shape[1]) <= np.arange(x.shape[1])[:, None] ** 2"},
        None,
    ),
]
