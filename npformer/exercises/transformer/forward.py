"""Exercises 1 to 6: the forward passes, and the loss."""

import numpy as np

from npformer.exercises import explanations
from npformer.exercises.course.cases import mask
from npformer.exercises.exercise import Case, Mistake, draw, sizes
from npformer.exercises.transformer.page import part

EACH_ROW = "each row has a sum of its own: its numbers lie along the last axis, axis=-1"


def softmax_cases(rng):
    """Rows, with large numbers and with what a mask leaves."""
    B, H, T, S = sizes(rng, 4, low=2)
    masked = np.where(mask(rng, T, S), draw(rng, T, S), -np.inf)
    return [
        Case("one row", np.log([[1.0, 3.0, 4.0]])),
        Case("several rows", draw(rng, T, S)),
        Case("a batch of heads", draw(rng, B, H, T, S)),
        Case("large numbers, and rows of different size", np.array([[0.0, 1.0], [2000.0, 2001.0]])),
        Case("masked entries, which are -inf", masked),
    ]


SOFTMAX = part(
    name="softmax",
    cases=softmax_cases,
    mistakes=(
        Mistake({"x - x.max(axis=-1, keepdims=True)": "x"}, explanations.OVERFLOW),
        Mistake(
            {" / e.sum(axis=-1, keepdims=True)": ""},
            "the division by the sum is missing: a row has to sum to 1",
        ),
        Mistake({"e.sum(axis=-1, keepdims=True)": "e.sum()"}, EACH_ROW),
        Mistake(
            {"x.max(axis=-1, keepdims=True)": "x.max()"},
            "subtract the maximum of each row, not that of all: other rows become 0 / 0",
        ),
        Mistake(
            {
                "x.max(axis=-1, keepdims=True)": "x.max()",
                "e.sum(axis=-1, keepdims=True)": "e.sum()",
            },
            EACH_ROW,
        ),
        Mistake({"axis=-1": "axis=0"}, EACH_ROW),
        Mistake({"axis=-1": "axis=-2"}, EACH_ROW),
    ),
    title="softmax of each row",
    page="attention/soft-dictionary",
    task="""
        x: an array of any shape -> y: the same shape. Along the last axis, y = exp(x) / Σ exp(x).

        exp(1000) is inf, so subtract the maximum of each row first, which changes nothing else. What a mask forbids is
        -inf, and becomes 0.""",
    hints=(
        "x.max(axis=-1, keepdims=True) has one number a row, with a shape that can be subtracted from x.",
        "e = np.exp(x - maximum); the sum needs axis=-1 and keepdims=True too.",
    ),
    hint_for={"sum|axis": 2},
)


ROOT_OF_INT = "np.sqrt of an int is an np.float64, which makes float64 of all that it multiplies or divides; K ** -0.5 does not"


def attention_cases(rng, n_dout=0):
    """With masks of the shapes that the model has; for the backward pass with dout."""
    B, H, T, S, K = sizes(rng, 5, low=2, high=6)
    shape = B, H, T, S, K
    ones = np.ones((1, 1, 1, 2), dtype=bool)

    def case(what, B, H, T, S, K, keep, size=1.0):
        q = size * draw(rng, B, H, T, K)
        k = size * draw(rng, B, H, S, K)
        v = draw(rng, B, H, S, K)
        return Case(what, q, k, v, keep, *(draw(rng, B, H, T, K) for _ in range(n_dout)))

    return [
        case("one query, two keys", 1, 1, 1, 2, 3, ones),
        case("several queries", 1, 1, 3, 4, 2, np.ones((3, 4), dtype=bool)),
        case(
            "a batch of heads, with a mask of the keys (B, 1, 1, S)", *shape, mask(rng, B, 1, 1, S)
        ),
        case("a causal mask (T, T)", B, H, T, T, K, np.tri(T, dtype=bool)),
        case("a mask of each query (B, 1, T, S)", *shape, mask(rng, B, 1, T, S)),
        case("large scores", *shape, mask(rng, T, S), 10.0),
    ]


ATTENTION = part(
    name="attention",
    cases=attention_cases,
    mistakes=(
        Mistake({"q.shape[-1] ** -0.5": "1.0"}, "the factor 1/√K is missing"),
        Mistake({"q.shape[-1] ** -0.5": "1 / q.shape[-1]"}, explanations.DIVIDED_BY_K),
        Mistake(
            {"q.shape[-1]": "k.shape[-2]"}, "the scores are divided by √S: K is the last axis of q"
        ),
        Mistake(
            {"q.shape[-1]": "q.shape[-2]"}, "the scores are divided by √T: K is the last axis of q"
        ),
        Mistake(
            {"q.shape[-1] **": "len(q) **"},
            "the scores are divided by √B: len(q) counts the first axis, and K is the last one, q.shape[-1]",
        ),
        Mistake({"q.shape[-1] ** -0.5": "q.shape[-1] ** 0.5"}, explanations.MULTIPLIED_BY_ROOT),
        Mistake({"k.swapaxes(-1, -2)": "k"}, "kᵀ is missing: k.swapaxes(-1, -2)"),
        Mistake(
            {"np.where(keep_mask, scores, -np.inf)": "scores"},
            "the mask is not used: set the scores where it is False to -inf",
        ),
        Mistake(
            {
                "weights = softmax(np.where(keep_mask": "scores[~keep_mask] = -np.inf\n    weights = softmax(np.where(keep_mask"
            },
            "an index has to have the axes of scores: np.where(keep_mask, scores, -np.inf) takes a mask of fewer axes, too",
        ),
        Mistake(
            {"scores, -np.inf": "-np.inf, scores"},
            "the mask is used the wrong way round: True = may attend",
        ),
        Mistake(
            {"scores, -np.inf": "scores, 0"},
            "a forbidden score is 0, which exp makes 1: it has to be -inf",
        ),
        Mistake(
            {
                "softmax(np.where(keep_mask, scores, -np.inf))": "np.where(keep_mask, softmax(scores), 0)"
            },
            "the mask is applied after softmax: the weights no longer sum to 1",
        ),
        Mistake(
            {"-np.inf))": "-np.inf).swapaxes(-1, -2)).swapaxes(-1, -2)"},
            "the softmax is over the queries, axis=-2: the weights of a query sum to 1 over the keys, the last axis",
        ),
        Mistake(
            {"k.swapaxes(-1, -2)": "k.T"},
            "the swapped axes are not the last two, as in k.T, which also swaps batch and heads: k.swapaxes(-1, -2)",
        ),
        Mistake(
            {"softmax(np.where(keep_mask, scores, -np.inf))": "np.where(keep_mask, scores, 0)"},
            explanations.NO_SOFTMAX,
        ),
        Mistake(
            {
                "softmax(np.where(keep_mask, scores, -np.inf))": "np.where(keep_mask, scores, -np.inf)"
            },
            explanations.NO_SOFTMAX,
        ),
        Mistake(
            {"softmax(np.where(keep_mask, scores, -np.inf))": "scores"}, explanations.NO_SOFTMAX
        ),
    ),
    has_later_backward=True,
    float64_from=ROOT_OF_INT,
    title="attention, forward",
    page="attention/masks",
    task="""
        q (B, H, T, K), k and v (B, H, S, K), keep_mask: boolean, of a shape that fits (B, H, T, S) -> y (B, H, T, K).

            scores = q kᵀ / √K, and -inf where keep_mask is False;  weights = softmax(scores);  y = weights v

        Use softmax. Return y and the function backward, which you write later.""",
    hints=(
        "k.swapaxes(-1, -2) transposes the last two axes, and @ multiplies the last two of both.",
        "np.where(keep_mask, scores, -np.inf) keeps the scores where the mask is True.",
        "weights = softmax(np.where(keep_mask, q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5, -np.inf)).",
    ),
    hint_for={"√|dtype": 3, "mask|forbidden|nan": 2, "softmax": 3},
)


def split_cases(rng):
    """Some widths and numbers of heads."""
    B, T, H, K = sizes(rng, 4, low=2)
    return [
        Case("two words, two heads of two", np.arange(8.0).reshape(1, 2, 4), 2),
        Case("a batch", draw(rng, B, T, H * K), H),
        Case("one head", draw(rng, B, T, K), 1),
        Case("heads of one number", draw(rng, B, T, H), H),
    ]


SPLIT_HEADS = part(
    name="split_heads",
    cases=split_cases,
    mistakes=(
        Mistake(
            {
                "x.reshape(B, T, n_heads, D // n_heads).transpose(0, 2, 1, 3)": "x.reshape(B, n_heads, T, D // n_heads)"
            },
            "reshape alone mixes positions and heads: first divide the last axis, then move an axis",
        ),
        Mistake({".transpose(0, 2, 1, 3)": ""}, explanations.HEADS_STILL_BEHIND),
        Mistake(
            {".transpose(0, 2, 1, 3)": ".swapaxes(0, 1)"},
            "this swaps the axes 0 and 1, the batch and the positions: swap the positions and the heads, 1 and 2",
        ),
        Mistake(
            {".transpose(0, 2, 1, 3)": ".swapaxes(2, 3)"},
            "this swaps the axes 2 and 3, the heads and their numbers: swap the positions and the heads, 1 and 2",
        ),
        Mistake({"D // n_heads": "D / n_heads"}, explanations.FLOAT_WIDTH),
        Mistake(
            {
                "n_heads, D // n_heads).transpose(0, 2, 1, 3)": "D // n_heads, n_heads).transpose(0, 3, 1, 2)"
            },
            explanations.EVERY_HTH,
        ),
    ),
    title="split the width into heads",
    page="attention/heads",
    task="""
        x (B, T, D), n_heads: H, a divisor of D -> (B, H, T, K) with K = D / H.

        Head h of a position has the K neighbouring numbers x[..., h * K : (h + 1) * K].""",
    hints=(
        "reshape can divide the last axis into two: (B, T, D) -> (B, T, H, K).",
        "transpose(0, 2, 1, 3) then moves the axis of the heads before that of the positions.",
    ),
    hint_for={"still after|swap": 2},
)


def merge_cases(rng):
    """Some widths and numbers of heads."""
    B, H, T, K = sizes(rng, 4, low=2)
    return [
        Case("two heads of two, two words", np.arange(8.0).reshape(1, 2, 2, 2)),
        Case("a batch", draw(rng, B, H, T, K)),
        Case("one head", draw(rng, B, 1, T, K)),
        Case("as many heads as words", draw(rng, B, T, T, K)),
    ]


MERGE_HEADS = part(
    name="merge_heads",
    cases=merge_cases,
    mistakes=(
        Mistake(
            {".transpose(0, 2, 1, 3)": ""},
            "reshape alone mixes heads and positions: first move the axis of the heads back",
        ),
        Mistake(
            {"(0, 2, 1, 3)": "(0, 2, 3, 1)"},
            "the heads lie between each other: a head's K numbers have to stay neighbours",
        ),
        Mistake({".reshape(B, T, H * K)": ""}, "the two last axes, H and K, have to become one"),
    ),
    title="merge the heads again",
    page="attention/heads",
    task="""
        x (B, H, T, K) -> (B, T, H K): what split_heads does, undone. Each is the backward pass of the other, as both only
        move numbers.""",
    hints=("The same transpose as in split_heads, then a reshape that makes one axis of two.",),
)


def norm_cases(rng, n_dy=0):
    """Rows, also with a small variance, where eps counts."""
    B, T, D = sizes(rng, 3, low=2)

    def case(what, *shape, size=2.0):
        params = {"gain": draw(rng, shape[-1]), "bias": draw(rng, shape[-1])}
        return Case(
            what, params, size * draw(rng, *shape) + 1, *(draw(rng, *shape) for _ in range(n_dy))
        )

    return [
        case("one row", 1, 3),
        case("as many rows as columns", 3, 3),
        case("a batch", B, T, D),
        case("nearly equal numbers, so that eps counts", B, T, D, size=0.003),
    ]


EACH_MEAN = (
    "each row has a mean and a variance of its own: its numbers lie along the last axis, axis=-1"
)

LAYER_NORM = part(
    name="layer_norm",
    cases=norm_cases,
    mistakes=(
        Mistake({" * rstd": ""}, "the division by the standard deviation is missing"),
        Mistake({" + eps": ""}, "eps is missing: it is added to the variance, inside the root"),
        Mistake(
            {
                "1 / np.sqrt((deviation**2).mean(axis=-1, keepdims=True) + eps)": "1 / (np.sqrt((deviation**2).mean(axis=-1, keepdims=True)) + eps)"
            },
            "eps belongs inside the root: √(variance + eps)",
        ),
        Mistake(
            {
                "1 / np.sqrt((deviation**2).mean(axis=-1, keepdims=True) + eps)": "1 / ((deviation**2).mean(axis=-1, keepdims=True) + eps)"
            },
            "this divides by the variance, not by its root",
        ),
        Mistake({"x - x.mean(axis=-1, keepdims=True)": "x"}, "the mean is not subtracted"),
        Mistake({"deviation * rstd": "x * rstd"}, "the mean is not subtracted"),
        Mistake(
            {"x.mean(axis=-1, keepdims=True)": "x.mean()"},
            "this is the mean of all rows: each row has its own",
        ),
        Mistake({"axis=-1": "axis=0"}, EACH_MEAN),
        Mistake({"(deviation**2).mean(axis=-1": "(deviation**2).mean(axis=0"}, EACH_MEAN),
        Mistake(
            {
                "(deviation**2).mean(axis=-1, keepdims=True)": "x.var(axis=-1, keepdims=True, ddof=1)"
            },
            "the variance divides by D, not by D - 1",
        ),
        Mistake(
            {"(deviation**2).mean(axis=-1, keepdims=True)": "x.var()"}, explanations.VARIANCE_OF_ALL
        ),
        Mistake({'x_hat * params["gain"] + params["bias"]': "x_hat"}, "gain and bias are missing"),
        Mistake(
            {'x_hat * params["gain"] + params["bias"]': 'x_hat + params["bias"]'},
            "the gain is missing",
        ),
        Mistake(
            {'x_hat * params["gain"] + params["bias"]': 'x_hat * params["gain"]'},
            "the bias is missing",
        ),
    ),
    has_later_backward=True,
    title="layer normalisation, forward",
    page="model/layers",
    task="""
        params: {"gain": (D,), "bias": (D,)}, x (..., D) -> y (..., D). In each row, the last axis,

            x̂ = (x - mean) / √(variance + eps);  y = x̂ · gain + bias

        The variance is the mean of (x - mean)². Return y and the function backward, which you write later.""",
    hints=(
        "x.mean(axis=-1, keepdims=True) keeps the axis, so that it can be subtracted from x.",
        "rstd = 1 / np.sqrt((deviation**2).mean(axis=-1, keepdims=True) + eps); x̂ = deviation * rstd.",
    ),
    hint_for={"variance|deviation|eps": 2},
)


def loss_cases(rng):
    """With padding, smoothing and large logits. The classes 0, 1, 2 are padding, begin and end."""
    B, T, V = sizes(rng, 3, low=3, high=6)
    padded = rng.integers(1, V, (B, T))
    padded[0, 1:] = 0
    return [
        Case("one word", np.log([[[0.25, 0.25, 0.5]]]), np.array([[2]]), 0.0),
        Case("several words", draw(rng, B, T, V), rng.integers(1, V, (B, T)), 0.0),
        Case("padding, which does not count", draw(rng, B, T, V), padded, 0.0),
        Case("smoothed labels", draw(rng, B, T, V), padded, 0.1),
        Case("large logits", 1000 * draw(rng, B, T, V), padded, 0.0),
    ]


PADDING_IS_SUMMED = (
    "padding is summed, too, though not counted: where the target is PAD the loss is 0"
)
SUM_OF_TARGETS = "the loss is the mean over the targets, not the sum"
# It is a mistake of one's own GPT, too.
LOGITS_OVERFLOW = Mistake(
    {"logits - logits.max(axis=-1, keepdims=True)": "logits"}, explanations.OVERFLOW
)

CROSS_ENTROPY = part(
    name="cross_entropy",
    cases=loss_cases,
    mistakes=(
        Mistake(
            {"return -(share": "return (share"},
            "the loss has the wrong sign: it is -Σ wanted · log p, which is positive",
        ),
        Mistake(
            {"share * (np.exp(log_p) - wanted)": "share * (wanted - np.exp(log_p))"},
            explanations.SIGN_OF_GRADIENT,
            without_formula="the gradient has the wrong sign",
        ),
        Mistake(
            {"share * (np.exp(log_p) - wanted)": "np.exp(log_p) - wanted"},
            "the gradient is not divided by the number of targets, or not 0 for padding",
        ),
        Mistake(
            {"counted / counted.sum()": "1 / counted.size"},
            "padding counts: it should be left out of the sum and of the number of targets",
        ),
        Mistake(
            {"counted / counted.sum()": "counted / counted.size"},
            "the sum is divided by the number of all targets: padding does not count",
        ),
        Mistake(
            {"share = counted / counted.sum()": "share = 1 / counted.sum()"}, PADDING_IS_SUMMED
        ),
        Mistake({"-(share * wanted": "-(wanted / counted.sum()"}, PADDING_IS_SUMMED),
        Mistake(
            {
                "(1 - label_smoothing) * np.eye(V)[targets] + label_smoothing / V": "np.where(np.eye(V)[targets] == 1, 1 - label_smoothing, label_smoothing / V)"
            },
            "the right id has 1 - label_smoothing alone: it gets label_smoothing / V, too, as every id",
        ),
        Mistake(
            {"share = counted / counted.sum()": "share = counted"},
            SUM_OF_TARGETS,
        ),
        Mistake(
            {"-(share * wanted": "-(counted * wanted"},
            SUM_OF_TARGETS,
        ),
        Mistake(
            {"label_smoothing / V": "label_smoothing / (V - 1)"},
            "every id has label_smoothing / V, also the right one",
        ),
        Mistake(
            {
                "np.eye(V)[targets] + label_smoothing / V": "np.eye(V)[targets] + label_smoothing / (V - 1) * (1 - np.eye(V)[targets])"
            },
            "label_smoothing is shared by all V ids, also the right one, not by the V - 1 others",
        ),
        LOGITS_OVERFLOW,
        Mistake(
            {
                "shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))": "np.log(softmax(logits))"
            },
            explanations.LOG_OF_0,
        ),
        Mistake(
            {
                "(1 - label_smoothing) * np.eye(V)[targets] + label_smoothing / V": "np.eye(V)[targets]"
            },
            "label_smoothing is not used",
        ),
        Mistake(
            {"(1 - label_smoothing) * np.eye": "np.eye"},
            "with smoothing the right word has 1 - label_smoothing, so that wanted sums to 1",
        ),
        Mistake(
            {"share * (np.exp(log_p) - wanted)": "counted * (np.exp(log_p) - wanted)"},
            "the gradient is not divided by the number of targets: the loss is their mean",
        ),
        Mistake(
            {
                "share * (np.exp(log_p) - wanted)": "counted / counted.size * (np.exp(log_p) - wanted)"
            },
            "the gradient is divided by the number of all targets: padding does not count",
        ),
        Mistake(
            {"share * (np.exp(log_p) - wanted)": "(np.exp(log_p) - wanted) / counted.sum()"},
            "padding has a gradient: it has to be 0 where the target is PAD",
        ),
        Mistake(
            {"share * (np.exp(log_p) - wanted)": "-share * wanted / np.exp(log_p)"},
            "this is the derivative with respect to p, not to the logits: each p depends on all logits of its row",
        ),
        Mistake(
            {"share * (np.exp(log_p) - wanted)": "share * np.exp(log_p)"},
            "wanted is missing in the gradient: the loss depends on the targets",
        ),
        Mistake(
            {"share * (np.exp(log_p) - wanted)": "share * (np.exp(log_p) - np.eye(V)[targets])"},
            "label_smoothing is not used in the gradient",
        ),
        Mistake(
            {"share * (np.exp(log_p) - wanted)": "share * (log_p - wanted)"},
            "the gradient has log p where p belongs",
        ),
        Mistake(
            {"share * (np.exp(log_p) - wanted)": "share * wanted * (np.exp(log_p) - 1)"},
            "this is the gradient of the right word's logit alone: the other logits change the loss, too",
        ),
        Mistake(
            {"share * (np.exp(log_p) - wanted)": "share * (np.exp(log_p) - wanted) / V"},
            "the gradient is divided by V, too: the mean is one over the targets, not over the ids",
        ),
    ),
    result_names=("loss", "dlogits"),
    title="the loss, and its gradient",
    page="gradients/cross-entropy",
    task="""
        logits (B, T, V), targets (B, T): ids, PAD where nothing counts -> loss: a number, dlogits (B, T, V).

        wanted is a distribution for each target: 1 - label_smoothing for the right id, and label_smoothing / V for
        every id, also the right one. With p = softmax(logits) and n targets that are not PAD,

            loss = -1/n Σ wanted · log p;  dlogits = (p - wanted) / n, and 0 where the target is PAD

        Logits of 1000 must not overflow, nor give log 0: log p = x - log Σ exp(x), after the maximum is subtracted.""",
    hints=(
        "np.eye(V)[targets] has a row with a single 1 for each target.",
        "counted = (targets != PAD)[..., None]; share = counted / counted.sum() is 1/n or 0.",
        "loss = -(share * wanted * log_p).sum(); dlogits = share * (np.exp(log_p) - wanted).",
    ),
    hint_for={"padding|PAD|number of|the mean": 2, "sign|gradient|dlogits|loss is wrong": 3},
)

EXERCISES = (SOFTMAX, ATTENTION, SPLIT_HEADS, MERGE_HEADS, LAYER_NORM, CROSS_ENTROPY)
