"""Exercises 1 to 4: what a layer is made of, beside attention."""

import numpy as np

from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, draw, sizes
from npformer.exercises.gpt.page import layer, part
from npformer.exercises.transformer.layers import MAPS_OF_FEED_FORWARD_EXCHANGED


def embed_cases(rng):
    """Also with ids that occur twice, and that do not occur."""
    B, T, V, D = sizes(rng, 4, low=2)
    V += 2  # so that some id does not occur in every case
    return [
        Case(
            "one id",
            np.array([[1.0, 2.0], [3.0, 4.0]]),
            np.array([[1]]),
            np.array([[[10.0, 20.0]]]),
        ),
        Case("an id that occurs twice", draw(rng, 3, 2), np.array([[2, 0, 2]]), draw(rng, 1, 3, 2)),
        Case("a batch", draw(rng, V, D), rng.integers(0, V, (B, T)), draw(rng, B, T, D)),
        Case(
            "as many ids as rows", draw(rng, T, D), rng.integers(0, T, (B, T)), draw(rng, B, T, D)
        ),
    ]


TWICE = "an id that occurs twice gets only its last gradient: dtable[ids] += dx adds once; np.add.at adds all"
MEANS = "return dtable / np.maximum(np.bincount(ids.ravel(), minlength=len(table)), 1)[:, None]"

EMBED = part(
    name="embed",
    cases=embed_cases,
    mistakes=(
        Mistake({"np.add.at(dtable, ids, dx)": "dtable[ids] += dx"}, TWICE),
        Mistake({"np.add.at(dtable, ids, dx)": "dtable[ids] = dx"}, TWICE),
        Mistake(
            {"return dtable": MEANS},
            "an id that occurs twice gets the sum of its gradients, not their mean",
        ),
        Mistake(
            {"return dtable": "return dx"},
            "this is the gradient of x: that of the table has the table's shape, (V, D)",
        ),
        Mistake(
            {"dtable = np.zeros_like(table)": "dtable = table.copy()"},
            "the gradient begins with zeros, not with the table",
        ),
        Mistake(
            {"np.add.at(dtable, ids, dx)": "np.add.at(table, ids, dx)"},
            "the gradient is added to the table itself: begin with np.zeros_like(table)",
        ),
        Mistake(
            {"np.zeros_like(table)": "np.zeros_like(dx)"},
            "the gradient has the shape of the table, not that of x",
        ),
        Mistake(
            {"return table[ids]": "return table[ids] * table.shape[1] ** 0.5"},
            "the rows are taken as they are: the factor √D belongs to positions that are added",
        ),
        Mistake(
            {"return table[ids]": "return table[:, ids]"},
            "an id is the number of a row, the first axis: table[ids]",
        ),
    ),
    result_names=("x",),
    gradients=("dtable",),
    float64_from="np.zeros makes float64; np.zeros_like(table) has the dtype of the table",
    title="look up a row for each character, forward and backward",
    page="gradients/embedding",
    task="""
        table (V, D), ids (B, T): integers -> x (B, T, D), the row of the table for each id, and the function backward.

        backward(dx), dx (B, T, D), returns dtable (V, D): each row of dx is added to the row of its id. An id that
        occurs twice gets the sum of two rows, and one that does not occur gets zeros.""",
    hints=(
        "An array of integers is an index: table[ids] has a row for each of them.",
        "dtable[ids] += dx adds only once where an id occurs twice. NumPy has a function that adds each time.",
        "dtable = np.zeros_like(table); np.add.at(dtable, ids, dx).",
    ),
    hint_for={"np[.]add|zeros|shape|dtype": 3, "occurs twice|dtable|not written": 2},
)


def norm_cases(rng):
    """Rows, also small ones, where eps counts."""
    B, T, D = sizes(rng, 3, low=2)

    def case(what, *shape, size=2.0):
        params = {"gain": draw(rng, shape[-1])}
        return Case(what, params, size * draw(rng, *shape) + size / 2, draw(rng, *shape))

    return [
        Case("one row", {"gain": np.ones(2)}, np.array([[[1.0, 7.0]]]), np.array([[[10.0, 0.0]]])),
        case("several rows", 1, 3, 3),
        case("a batch", B, T, D),
        case("small numbers, so that eps counts", B, T, D, size=0.001),
    ]


EACH_ROW = (
    "each row is divided by a number of its own: its numbers lie along the last axis, axis=-1"
)
CONSTANT = "the root mean square depends on x too: the term x̂ · mean(dx̂ · x̂) is missing in dx"
BOTH_AXES = "every row of every passage uses the gain: dgain is a sum over both axes, axis=(0, 1)"
NO_MEAN = "no mean is subtracted here: that is layer normalisation"

RMS_NORM = part(
    name="rms_norm",
    cases=norm_cases,
    mistakes=(
        Mistake({" * rstd": ""}, "the division by the root mean square is missing"),
        Mistake({" + eps": ""}, "eps is missing: it is added to the mean square, inside the root"),
        Mistake(
            {
                "1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)": "1 / (np.sqrt((x**2).mean(axis=-1, keepdims=True)) + eps)"
            },
            "eps belongs inside the root: √(mean(x²) + eps)",
        ),
        Mistake(
            {
                "1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)": "1 / ((x**2).mean(axis=-1, keepdims=True) + eps)"
            },
            "this divides by the mean square: its root is missing",
        ),
        Mistake(
            {"(x**2).mean": "(x**2).sum"}, "this is the sum of the squares: the mean is wanted"
        ),
        Mistake(
            {"1 / np.sqrt((x**2)": "1 / np.sqrt(((x - x.mean(axis=-1, keepdims=True))**2)"},
            "this divides by the standard deviation: the mean square is that of x itself",
        ),
        Mistake(
            {
                "    rstd = 1 / np.sqrt((x**2)": "    x = x - x.mean(axis=-1, keepdims=True)\n    rstd = 1 / np.sqrt((x**2)"
            },
            NO_MEAN,
        ),
        Mistake({"axis=-1": "axis=0"}, EACH_ROW),
        Mistake({'x_hat * params["gain"], backward': "x_hat, backward"}, "the gain is missing"),
        Mistake({'dx_hat = dy * params["gain"]': "dx_hat = dy"}, explanations.NO_GAIN_IN_DX),
        Mistake({"dx_hat - x_hat * slope": "dx_hat"}, CONSTANT),
        Mistake(
            {"dx_hat - x_hat * slope": "dx_hat - 2 * x_hat * slope"},
            "there is no factor 2 in dx: that of the square goes with the 1/2 of the root",
        ),
        Mistake(
            {"dx_hat - x_hat * slope": "dx_hat + x_hat * slope"},
            "the term x̂ · mean(dx̂ · x̂) is subtracted in dx",
        ),
        Mistake(
            {"dx_hat - x_hat * slope": "dx_hat - slope"},
            "the mean of dx̂ · x̂ is multiplied by x̂ before it is subtracted",
        ),
        Mistake(
            {"rstd * (dx_hat": "(dx_hat"},
            "the factor 1/√(mean(x²) + eps) in front of dx is missing",
        ),
        Mistake(
            {"(dx_hat * x_hat).mean": "(dx_hat * x_hat).sum"},
            "a sum is subtracted in dx where a mean is expected",
        ),
        Mistake({"(dx_hat * x_hat).mean": "(dx_hat * x).mean"}, "dx uses x where x̂ is expected"),
        Mistake(
            {"(dx_hat * x_hat).mean": "(dy * x_hat).mean"},
            "the gain is missing in the mean: it is that of dx̂ · x̂",
        ),
        Mistake(
            {
                "dx_hat - x_hat * slope": "dx_hat - dx_hat.mean(axis=-1, keepdims=True) - x_hat * slope"
            },
            NO_MEAN,
        ),
        Mistake(
            {"(dy * x_hat).sum(axis=(0, 1))": "(dy * x).sum(axis=(0, 1))"},
            "dgain uses x where x̂ is expected",
        ),
        Mistake(
            {"(dy * x_hat).sum(axis=(0, 1))": "(dx_hat * x_hat).sum(axis=(0, 1))"},
            "dgain is the sum of dy · x̂: there is no gain in it",
        ),
        Mistake(
            {"(dy * x_hat).sum(axis=(0, 1))": "dy.sum(axis=(0, 1))"},
            "this is the gradient of a bias: the gain is multiplied by x̂, so dgain is the sum of dy · x̂",
        ),
        Mistake(
            {"(dy * x_hat).sum(axis=(0, 1))": "dy * x_hat"},
            "every row uses the gain, so dgain is the sum of all rows",
        ),
        Mistake({"(0, 1)": "0"}, BOTH_AXES),
        Mistake({"(0, 1)": "1"}, BOTH_AXES),
        Mistake({"(0, 1)": "-1"}, "dgain is a sum over the rows, not one number for each row"),
        Mistake(
            {"(dy * x_hat).sum(axis=(0, 1))": "(dy * x_hat).mean(axis=(0, 1))"},
            "every row uses the gain, so its gradient is the sum, not the mean",
        ),
    ),
    gradients=("dx", "grads"),
    title="RMS normalisation, forward and backward",
    page="gradients/rms-norm",
    task="""
        params: {"gain": (D,)}, x (B, T, D) -> y (B, T, D), and the function backward. In each row, the last axis,

            x̂ = x / √(mean(x²) + eps);  y = x̂ · gain

        backward(dy), dy (B, T, D), returns dx (B, T, D) and grads = {"gain": (D,)}. With the mean of each row,

            dx̂ = dy · gain;  dx = (dx̂ - x̂ · mean(dx̂ · x̂)) / √(mean(x²) + eps)

        and dgain is the sum of dy · x̂ over B and T.""",
    hints=(
        "(x**2).mean(axis=-1, keepdims=True) is one number a row, with a shape that x can be divided by.",
        "Keep rstd = 1 / np.sqrt(… + eps) and x_hat = x * rstd: backward needs both.",
        '{"gain": (dy * x_hat).sum(axis=(0, 1))}, and rstd * (dx_hat - x_hat * the mean) is dx.',
    ),
    hint_for={"dx|dgain|gradient|grads|not written": 3, "root|eps": 2},
)


def feed_forward_cases(rng):
    """Also with large numbers, where the gate is open or closed."""
    B, T, D, F = sizes(rng, 4, low=2)

    def case(what, *shape, size=1.0):
        return Case(
            what, layer(rng, D, F)["feed_forward"], size * draw(rng, *shape), draw(rng, *shape)
        )

    ones = {"hidden": {"weight": np.ones((1, 2))}, "out": {"weight": np.ones((1, 1))}}
    return [
        Case("one number", ones, np.log([[[3.0]]]), np.array([[[1.0]]])),
        case("one row", 1, 1, D),
        case("a batch", B, T, D),
        case("large numbers", B, T, D, size=10.0),
    ]


SIDE_BY_SIDE = "da and db are side by side, as a and b were: concatenate them along the last axis"
SIGMOID = "this is the slope of the sigmoid alone: that of a σ(a) is σ(a) (1 + a (1 - σ(a)))"

FEED_FORWARD = part(
    name="feed_forward",
    cases=feed_forward_cases,
    mistakes=(
        Mistake({"a * s * b": "s * b"}, "this is the sigmoid of a: silu(a) is a times it"),
        Mistake({"a * s * b": "a * s"}, "b is missing: the hidden layer is silu(a) · b"),
        Mistake({"a * s * b": "a * b"}, "the sigmoid is missing: silu(a) = a / (1 + exp(-a))"),
        Mistake({"a * s * b": "a * s + b"}, "silu(a) and b are multiplied, not added"),
        Mistake(
            {"a * s * b": "np.maximum(a, 0) * b"}, "this is relu(a): silu(a) is a times its sigmoid"
        ),
        Mistake(
            {"a, b = np.split": "b, a = np.split"},
            "the halves are exchanged: silu takes the first, a",
        ),
        Mistake(
            {"np.exp(-a)": "np.exp(a)"},
            "the sign in the exponent is wrong: the sigmoid is 1 / (1 + exp(-a))",
        ),
        Mistake(
            {"a, b = np.split(ab, 2, axis=-1)": "a, b = ab[..., ::2], ab[..., 1::2]"},
            "a is the first half of the width, b the second: they do not alternate",
        ),
        Mistake({"b * s * (1 + a * (1 - s))": "b * s * (1 - s)"}, SIGMOID),
        Mistake(
            {"(1 + a * (1 - s))": "(1 + a * s)"},
            "the slope of the sigmoid is σ(a) (1 - σ(a)), so that of a σ(a) is σ(a) (1 + a (1 - σ(a)))",
        ),
        Mistake(
            {"dh * b * s * (1 + a * (1 - s))": "dh * b * s"},
            "the sigmoid depends on a, too: the slope of a σ(a) is σ(a) (1 + a (1 - σ(a)))",
        ),
        Mistake(
            {"dh * b * s * (1 + a * (1 - s))": "dh * b * a * s * (1 - s)"},
            "the first term of the slope is missing: it is σ(a) + a σ(a) (1 - σ(a))",
        ),
        Mistake(
            {"dh * b * s * (1 + a * (1 - s))": "dh * s * (1 + a * (1 - s))"},
            "b is missing in da: the gradient of one factor has the other one in it",
        ),
        Mistake({", dh * a * s\n": ", dh * a\n"}, "db = dh · silu(a): the sigmoid is missing"),
        Mistake({", dh * a * s\n": ", dh * s\n"}, "db = dh · silu(a): a is missing"),
        Mistake(
            {", dh * a * s\n": ", dh\n"},
            "db = dh · silu(a): the gradient of one factor has the other one in it",
        ),
        Mistake({"[da, db]": "[db, da]"}, "da and db are side by side as a and b were: da first"),
        Mistake({"np.concatenate([da, db], axis=-1)": "da + db"}, SIDE_BY_SIDE),
        Mistake({"np.concatenate([da, db], axis=-1)": "np.concatenate([da, db])"}, SIDE_BY_SIDE),
        MAPS_OF_FEED_FORWARD_EXCHANGED,
    ),
    gradients=("dx", "grads"),
    title="the feed-forward layer with its gate, both directions",
    page="gradients/activations",
    task="""
        params: {"hidden": …, "out": …}, of the maps D -> 2F and F -> D, x (B, T, D) -> y (B, T, D), and backward.

            a, b = the first and the second half of x W₁;  h = silu(a) · b;  y = h W₂
            silu(a) = a σ(a), with the sigmoid σ(a) = 1 / (1 + exp(-a))

        Call linear twice, and keep both functions that it returns. backward(dy) calls them in reverse order; between them

            da = dh · b · σ(a) (1 + a (1 - σ(a)));  db = dh · silu(a)

        It returns dx and grads = {"hidden": …, "out": …}.""",
    hints=(
        'ab, hidden_backward = linear(params["hidden"], x), and np.split(ab, 2, axis=-1) makes two halves of it.',
        "dh, out_grads = out_backward(dy) gives the gradient of h = a * s * b.",
        "np.concatenate([da, db], axis=-1) is the gradient of ab: hand it to hidden_backward.",
    ),
    hint_for={"side by side": 3, "two maps|dx|not written": 2},
)


def rotary_cases(rng):
    """With more positions than heads, fewer, and as many."""
    B, H, T, K = sizes(rng, 4, low=2, high=5)
    K *= 2
    pairs = np.array([[[[1.0, 0.0]] * 3]])

    def case(what, *shape, base):
        return Case(what, draw(rng, *shape), base, draw(rng, *shape))

    return [
        Case("one pair at three positions", pairs, 10000.0, pairs),
        case("a batch of heads", B, H, T, K, base=10000.0),
        case("one position", B, H, 1, K, base=10000.0),
        case("another base", B, T, H, K, base=10.0),
    ]


ONE_SIGN = "one sign is wrong: (a cos - b sin, a sin + b cos)"
NEIGHBOURS = "a pair is i and i + K/2, the two halves of a head, not two neighbours"
EXPONENT = "the angle is t · base^(-2i/K): the factor 2 is missing in the exponent"

ROTARY = part(
    name="rotary",
    cases=rotary_cases,
    mistakes=(
        Mistake(
            {
                "a, b = np.split(x, 2, axis=-1)": "a, b = x[..., ::2], x[..., 1::2]",
                "np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)": "np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)",
            },
            NEIGHBOURS,
        ),
        Mistake({"a, b = np.split(x, 2, axis=-1)": "a, b = x[..., ::2], x[..., 1::2]"}, NEIGHBOURS),
        Mistake(
            {"a * cos - b * sin, a * sin + b * cos": "a * cos + b * sin, b * cos - a * sin"},
            "the pair is turned in the other direction: (a cos - b sin, a sin + b cos)",
        ),
        Mistake(
            {"a * cos - b * sin, a * sin + b * cos": "a * cos - b * sin, b * cos - a * sin"},
            ONE_SIGN,
        ),
        Mistake(
            {"a * cos - b * sin, a * sin + b * cos": "a * cos + b * sin, a * sin + b * cos"},
            ONE_SIGN,
        ),
        Mistake(
            {"a * cos - b * sin, a * sin + b * cos": "a * cos - b * sin, a * cos + b * sin"},
            "the second entry is a sin + b cos: sine and cosine are exchanged",
        ),
        Mistake(
            {
                "np.cos(angles).astype(x.dtype), np.sin(angles)": "np.sin(angles).astype(x.dtype), np.cos(angles)"
            },
            "sine and cosine are exchanged: at position 0 nothing is turned",
        ),
        Mistake({"-2 * np.arange(K // 2) / K": "-np.arange(K // 2) / K"}, EXPONENT),
        Mistake(
            {"-2 * np.arange(K // 2) / K": "-2 * np.arange(K // 2) / (K // 2)"},
            "the exponent is -2i/K, with the whole width K of a head",
        ),
        Mistake(
            {"-2 * np.arange(K // 2) / K": "2 * np.arange(K // 2) / K"},
            "the exponent is negative: the later a pair, the more slowly it turns",
        ),
        Mistake(
            {"np.arange(T)[:, None]": "(np.arange(T) + 1)[:, None]"},
            "the first position is 0: it is not turned at all",
        ),
        Mistake(
            {
                "T, K = x.shape[-2:]": "T, K = x.shape[1], x.shape[-1]",
                "turned(x, sin):\n": "turned(x, sin):\n        x = x.swapaxes(1, 2)\n",
                "a * sin + b * cos], axis=-1)": "a * sin + b * cos], axis=-1).swapaxes(1, 2)",
            },
            "this turns by the number of the head: the positions are the axis before the last",
        ),
        Mistake(
            {"T, K = x.shape[-2:]": "T, K = x.shape[1], x.shape[-1]"},
            "T is the axis before the last of x (B, H, T, K); the second one is that of the heads",
        ),
        Mistake(
            {"turned(dy, -sin)": "turned(dy, sin)"},
            "the backward pass turns by the same angle again: turn back, with -sin",
        ),
        Mistake(
            {"turned(dy, -sin)": "dy"},
            "the gradient is not turned back: it needs the opposite angle, -sin",
        ),
    ),
    gradients=("dx",),
    float64_from="cos and sin of positions are float64: convert them, as in np.cos(angles).astype(x.dtype)",
    title="positions that turn, forward and backward",
    page="model/options",
    task="""
        x (B, H, T, K) -> y (B, H, T, K), and the function backward. With a the first half of the last axis, b the
        second, the position t = 0, …, T-1 and i = 0, …, K/2-1:

            angle(t, i) = t · base^(-2i/K);  y = (a cos - b sin, a sin + b cos), put together along the last axis

        backward(dy) returns dx: the same with the opposite angle, that is with -sin in place of sin. Convert cos and
        sin to the dtype of x (.astype).""",
    hints=(
        "np.arange(T)[:, None] is a column, np.arange(K // 2) a row: their product has the shape (T, K/2).",
        "a, b = np.split(x, 2, axis=-1), and np.concatenate([…, …], axis=-1) puts two halves together.",
        "Write a function turned(x, sin) inside of rotary, and call it with sin and with -sin.",
    ),
    hint_for={"neighbours": 2, "-sin|dx|not written": 3},
)

EXERCISES = (EMBED, RMS_NORM, FEED_FORWARD, ROTARY)
