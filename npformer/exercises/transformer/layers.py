"""Exercises 10 to 14: layers, the model and a step of training."""

import numpy as np

from npformer.exercises import explanations
from npformer.exercises.course import AdamPart
from npformer.exercises.course.cases import mask, paths
from npformer.exercises.exercise import Case, Mistake, draw, sizes
from npformer.exercises.transformer.page import NAME, PAGE, model, part
from npformer.tree import map_leaves

# With the same words, these are mistakes of one's own GPT, too.
MAPS_OF_FEED_FORWARD_EXCHANGED = Mistake(
    {'{"hidden": hidden_grads, "out": out_grads}': '{"hidden": out_grads, "out": hidden_grads}'},
    explanations.MAPS_EXCHANGED,
)
NORMS_EXCHANGED = Mistake(
    {
        '"attention_norm"': '"@"',
        '"feed_forward_norm"': '"attention_norm"',
        '"@"': '"feed_forward_norm"',
    },
    "the two normalisations are exchanged",
)


def feed_forward_cases(rng):
    """Also with hidden units that are exactly 0."""
    B, T, D, F = sizes(rng, 4, low=2)

    def case(what, *shape, zero=1.0):
        layer = model(rng, shape[-1], F)["encoder"]["0"]["feed_forward"]
        layer["hidden"]["bias"] *= zero
        return Case(what, layer, zero * draw(rng, *shape), draw(rng, *shape))

    return [
        case("one row", 1, D),
        case("a batch", B, T, D),
        case("hidden units that are 0", B, T, D, zero=0.0),
    ]


FEED_FORWARD = part(
    name="feed_forward",
    cases=feed_forward_cases,
    mistakes=(
        Mistake({"np.maximum(h, 0)": "h"}, "relu is missing: the hidden layer is max(h, 0)"),
        Mistake(
            {"np.where(h > 0, drelu, 0)": "drelu"},
            "relu's backward pass is missing: where h was not positive the gradient is 0",
        ),
        Mistake(
            {"h > 0": "h >= 0"}, "where h is exactly 0, the derivative of relu is taken to be 0"
        ),
        Mistake(
            {"np.where(h > 0, drelu, 0)": "np.where(drelu > 0, drelu, 0)"},
            "it is the sign of h that decides, not that of the gradient",
        ),
        MAPS_OF_FEED_FORWARD_EXCHANGED,
        Mistake(
            {"np.where(h > 0, drelu, 0)": "drelu * np.maximum(h, 0)"},
            "this multiplies by relu itself, where its derivative belongs: 1 where h is above 0, else 0",
        ),
        Mistake(
            {"np.where(h > 0, drelu, 0)": "drelu * h"},
            "this multiplies by h, where the derivative of relu belongs: 1 where h is above 0, else 0",
        ),
        Mistake(
            {"np.where(h > 0, drelu, 0)": "np.where(h > 0, 1.0, 0)"},
            "this is the derivative of relu alone: the gradient that comes back is missing",
        ),
    ),
    gradients=("dx", "grads"),
    title="the feed-forward layer, forward and backward",
    page="gradients/activations",
    task="""
        params: {"hidden": …, "out": …}, the parameters of two linear maps, x (B, T, D) -> y (B, T, D), and backward.

            h = x W₁ + b₁;  y = relu(h) W₂ + b₂, with relu(h) = max(h, 0)

        Call linear twice, and keep both functions that it returns. backward(dy) calls them in reverse order, sets the
        gradient to 0 where h is not above 0, and returns dx and grads = {"hidden": …, "out": …}.""",
    hints=(
        'h, hidden_backward = linear(params["hidden"], x), and the same for out with np.maximum(h, 0).',
        "drelu, out_grads = out_backward(dy); then hidden_backward(np.where(h > 0, drelu, 0)).",
    ),
    hint_for={"relu is missing": 1, "gradient|derivative|dx|not written": 2},
)


def self_attention_cases(rng):
    """With the masks of encoder and decoder."""
    B, T, H, K = sizes(rng, 4, low=2, high=5)

    def case(what, B, T, H, K, keep):
        params = model(rng, H * K)["encoder"]["0"]["attention"]
        return Case(what, params, draw(rng, B, T, H * K), keep, H, draw(rng, B, T, H * K))

    return [
        case("one head", 1, 2, 1, 2, np.ones((1, 1, 1, 2), dtype=bool)),
        case("several heads, with a mask of the keys", B, T, H, K, mask(rng, B, 1, 1, T)),
        case("a causal mask", B, T, H, K, np.tri(T, dtype=bool)),
    ]


# These, too.
MISTAKES_OF_HEADS = (
    Mistake(
        {'linear(params["out"], merge_heads(heads))': "(merge_heads(heads), lambda dy: (dy, {}))"},
        "the map out is missing after the heads are merged",
    ),
    Mistake(
        {
            "(split_heads(part, n_heads) for part in np.split(qkv, 3, axis=-1))": "np.split(split_heads(qkv, n_heads), 3, axis=-1)"
        },
        "first split qkv into q, k and v, each of width D, then each of them into heads",
    ),
    Mistake(
        {"q, k, v = (": "k, q, v = ("},
        "the three parts of qkv are query, key, value, in this order",
    ),
    Mistake(
        {"np.split(qkv, 3, axis=-1)": "(qkv[..., i::3] for i in range(3))"},
        "q, k and v are the three thirds of the width, one beside the other: they do not alternate",
    ),
    Mistake(
        {"merge_heads(heads))": "heads.reshape(x.shape))"},
        "reshape alone mixes heads and positions: merge_heads moves the axis of the heads back first",
    ),
    Mistake(
        {"split_heads(dheads, n_heads)": "dheads.reshape(heads.shape)"},
        "reshape alone mixes positions and heads: split_heads puts the gradient into the order of the heads",
    ),
)
MISTAKES_OF_PARTS = (
    Mistake(
        {"np.concatenate(dqkv, axis=-1)": "sum(dqkv)"},
        "dq, dk, dv are side by side, as q, k, v are in the result of the map: concatenate them",
    ),
    Mistake(
        {"np.concatenate(dqkv, axis=-1)": "np.concatenate(dqkv[::-1], axis=-1)"},
        "dq, dk, dv are concatenated in another order than q, k, v were split",
    ),
)

SELF_ATTENTION = part(
    name="self_attention",
    cases=self_attention_cases,
    mistakes=(
        *MISTAKES_OF_HEADS,
        Mistake(
            {"[merge_heads(part) for": "[part.reshape(x.shape) for"},
            "reshape alone mixes heads and positions: dq, dk and dv are put back by merge_heads",
        ),
        Mistake({"split_heads(dheads, n_heads)": "dheads"}, explanations.NOT_SPLIT_AGAIN),
        Mistake(
            {
                "[merge_heads(part) for part in attention_backward(split_heads(dheads, n_heads))]": "list(attention_backward(split_heads(dheads, n_heads)))"
            },
            explanations.NOT_MERGED_AGAIN,
        ),
        *MISTAKES_OF_PARTS,
    ),
    gradients=("dx", "grads"),
    title="self-attention of many heads, forward and backward",
    page="gradients/heads",
    task="""
        params: {"qkv": …, "out": …}, of the maps D -> 3D and D -> D, x (B, T, D), keep_mask, n_heads -> y (B, T, D), and
        backward.

        One linear map gives q, k, v side by side; split it into three, each into heads; attention; merge the heads; the
        linear map out. backward(dy) calls the backward functions in reverse order, and returns dx and
        grads = {"qkv": …, "out": …}. The backward pass of split_heads is merge_heads, and the other way round.""",
    hints=(
        "np.split(qkv, 3, axis=-1) gives the three parts; split_heads(part, n_heads) for each.",
        "dheads, out_grads = out_backward(dy); attention_backward(split_heads(dheads, n_heads)) gives dq, dk, dv.",
        "Merge the heads of each of the three, np.concatenate them along the last axis, and call qkv_backward.",
    ),
    hint_for={
        "has to be split|into the order": 2,
        "merged before|put back|side by side|another order": 3,
        "dx|not written": 2,
    },
)


def layer_cases(rng):
    """A row, and batches with masks."""
    B, T, H, K = sizes(rng, 4, low=2, high=5)

    def case(what, B, T, H, K, keep):
        layer = model(rng, H * K)["encoder"]["0"]
        x, dy = draw(rng, 2, B, T, H * K)
        return Case(what, layer, x, keep, H, dy)

    return [
        case("one sentence, one head", 1, 2, 1, 3, np.ones((1, 1, 1, 2), dtype=bool)),
        case("a batch, with a mask of the keys", B, T, H, K, mask(rng, B, 1, 1, T)),
    ]


NORM_AFTER = (
    "what a sublayer reads is normalised, as in other models: here it is the sum after the sublayer"
)
NORM_OF_SUBLAYER = "the result of a sublayer is normalised before it is added: here the sum is, norm(x + sublayer(x))"

ENCODER_LAYER = part(
    name="encoder_layer",
    cases=layer_cases,
    mistakes=(
        Mistake(
            {"x0 + attended": "attended"},
            "the residual connection round the attention is missing: normalise x0 + attended",
        ),
        Mistake({"x0 + attended": "x0"}, explanations.NO_ATTENDED),
        Mistake({"x1 + fed": "x1"}, explanations.NO_FED),
        Mistake({"x1 + fed": "x0 + fed"}, explanations.FED_ADDED_TO_X0),
        Mistake(
            {"x1 + fed": "fed"},
            "the residual connection round the feed-forward layer is missing: normalise x1 + fed",
        ),
        Mistake(
            {
                'feed_forward(params["feed_forward"], x1)': 'feed_forward(params["feed_forward"], x0)'
            },
            "the feed-forward layer reads x1, not x0",
        ),
        Mistake(
            {"return dsum + dattended": "return dattended"},
            "x0 is used twice: what goes past the attention, dsum, is missing in the result",
        ),
        Mistake(
            {"norm1_backward(dsum + dfed)": "norm1_backward(dfed)"},
            "x1 is used twice: what goes past the feed-forward layer, dsum, is missing",
        ),
        Mistake(
            {"norm1_backward(dsum + dfed)": "norm1_backward(dsum)"},
            explanations.NOT_THROUGH_FEED_FORWARD,
        ),
        Mistake(
            {
                "return dsum + dattended": "return dattended",
                "norm1_backward(dsum + dfed)": "norm1_backward(dfed)",
            },
            "x0 and x1 are used twice: what goes past the two sublayers is missing in both gradients",
        ),
        Mistake(
            {
                "(dsum + dfed)": "(dx1 := dsum + dfed)",
                "return dsum + dattended": "return dx1 + dattended",
            },
            "what goes past the attention is the gradient of the sum x0 + attended: that of x1, back through the normalisation",
        ),
        Mistake(
            {"return dsum + dattended": "return dx2 + dattended"},
            "what goes past the attention is the gradient of the sum x0 + attended, not dy itself",
        ),
        NORMS_EXCHANGED,
        Mistake(
            {
                '(params["attention"], x0': '(params["attention"], layer_norm(params["attention_norm"], x0)[0]',
                'layer_norm(params["attention_norm"], x0 + attended)': "(x0 + attended, None)",
                '(params["feed_forward"], x1': '(params["feed_forward"], layer_norm(params["feed_forward_norm"], x1)[0]',
                'layer_norm(params["feed_forward_norm"], x1 + fed)': "(x1 + fed, None)",
            },
            NORM_AFTER,
        ),
        Mistake(
            {'["attention"], x0': '["attention"], layer_norm(params["attention_norm"], x0)[0]'},
            NORM_AFTER,
        ),
        Mistake(
            {
                'x1, norm1_backward = layer_norm(params["attention_norm"], x0 + attended)': 'h, norm1_backward = layer_norm(params["attention_norm"], attended)\n    x1 = x0 + h'
            },
            NORM_OF_SUBLAYER,
        ),
        Mistake(
            {
                'x2, norm2_backward = layer_norm(params["feed_forward_norm"], x1 + fed)': 'h, norm2_backward = layer_norm(params["feed_forward_norm"], fed)\n    x2 = x1 + h'
            },
            NORM_OF_SUBLAYER,
        ),
        Mistake(
            {"feed_backward(dsum)": "feed_backward(dx2)"},
            "the feed-forward layer gets the gradient of the layer's result: that has to go back through the normalisation first",
        ),
        Mistake(
            {"attend_backward(dsum)": "attend_backward(dx2)"},
            "the attention gets the gradient of the layer's result: that has to go back through both normalisations first",
        ),
        Mistake(
            {"attend_backward(dsum)": "attend_backward(dfed)"},
            "the attention gets the gradient of the feed-forward layer: that has to go back through the normalisation first",
        ),
        Mistake(
            {"norm1_backward(dsum + dfed)": "norm1_backward(dx2 + dfed)"},
            "what goes past the feed-forward layer is the gradient of the sum x1 + fed, not dy itself",
        ),
        Mistake(
            {"norm1_backward(dsum + dfed)": "norm1_backward(dx2)"},
            "the gradient of the layer's result goes back through the second normalisation and the feed-forward layer first",
        ),
        Mistake(
            {"return dsum + dattended": "return dsum + dattended + dx2"},
            "x0 does not act on x2 directly: only its sum with the attention does, through two normalisations",
        ),
    ),
    result_names=("x2",),
    gradients=("dx0", "grads"),
    title="a whole encoder layer, forward and backward",
    page="gradients/residual",
    task="""
        params: those of attention, attention_norm, feed_forward, feed_forward_norm, under these names;
        x0 (B, T, D), keep_mask, n_heads -> x2 (B, T, D), and backward.

            x1 = norm(x0 + attention(x0));  x2 = norm(x1 + feed_forward(x1))

        In backward(dx2), each sum gives its gradient to both of its terms, and what is used twice gets the sum of two
        gradients. It returns dx0 and grads, a dict with the four names of params. In the forward part give each value its
        own name: backward sees the last value of a name.""",
    hints=(
        "Four lines forward; each keeps its backward function, and backward calls them in reverse order.",
        "norm2_backward(dx2) gives the gradient dsum of x1 + fed: fed's is dsum, and x1's is dsum and what feed_backward returns.",
        "norm1_backward(dsum + dfed) gives the gradient of x0 + attended, with which the same happens again.",
    ),
    hint_for={
        "x0 is used": 3,
        "x1 is used": 2,
        "past the attention": 3,
        "past the feed-forward": 2,
        "attention gets": 3,
        "feed-forward layer gets|second normalisation": 2,
        "dx0": 3,
    },
)


def transformer_cases(rng):
    """Source and target of different lengths with padding."""
    H, K = sizes(rng, 2, low=2, high=3)
    params = model(rng, H * K, n_layers=2)
    src = rng.integers(3, 7, (2, 4))
    tgt = rng.integers(3, 7, (2, 3))
    tgt[:, 0] = PAGE.module.BEGIN
    padded = src * [[1, 1, 1, 0], [1, 1, 1, 1]], tgt * [[1, 1, 1], [1, 1, 0]]
    return [
        Case("one sentence", params, src[:1], tgt[:1], H, draw(rng, 1, 3, 7)),
        Case("a batch with padding", params, *padded, H, draw(rng, 2, 3, 7)),
    ]


# All of these masks make NaN of every number.
SEES_NOTHING = "a position may attend to nothing: True = may attend, so ids != PAD, and each position sees itself"

TRANSFORMER = part(
    name="transformer",
    cases=transformer_cases,
    mistakes=(
        Mistake(
            {"is_past & is_tgt": "is_tgt"},
            "the causal mask is missing: a target position may read only itself and those before",
        ),
        Mistake(
            {"dtype=bool)": "dtype=bool).T"},
            "the causal mask is upside down: True on and below the diagonal, as np.tril has it",
        ),
        Mistake(
            {"np.tri(tgt_in.shape[1], dtype=bool)": "np.tri(tgt_in.shape[1], k=-1, dtype=bool)"},
            SEES_NOTHING,
        ),
        Mistake(
            {"np.tri(tgt_in.shape[1]": "np.tri(tgt_in.shape[0]"},
            "the causal mask has a row for each position of the target: T is tgt_in.shape[1]",
        ),
        Mistake(
            {"is_past & is_tgt": "is_past"}, "target positions may read padding: combine both masks"
        ),
        Mistake(
            {"is_past & is_tgt, is_src": "is_past & is_tgt, np.ones_like(is_src)"},
            "the decoder may read the source's padding",
        ),
        Mistake(
            {"memory, is_src, n_heads": "memory, np.ones_like(is_src), n_heads"},
            "the encoder may read the source's padding",
        ),
        Mistake(
            {"dmemory += dmemory_of_layer": "dmemory = dmemory_of_layer"},
            "every decoder layer reads the memory, so its gradient is the sum over the layers",
        ),
        Mistake(
            {"reversed(range(len(decoder)))": "range(len(decoder))"},
            "the backward functions of the decoder are called in reverse order",
        ),
        Mistake(
            {"reversed(range(len(encoder)))": "range(len(encoder))"},
            "the backward functions of the encoder are called in reverse order",
        ),
        Mistake(
            {
                "embed_src_backward(dmemory)": "embed_tgt_backward(dx)",
                '"target_embedding"] = embed_tgt_backward(dx)': '"target_embedding"] = embed_src_backward(dmemory)',
            },
            "the gradients of the two embeddings are exchanged",
        ),
        Mistake({"!= PAD": "== PAD"}, SEES_NOTHING),
        Mistake({"(src != PAD)": "(src == PAD)"}, SEES_NOTHING),
        Mistake({"(tgt_in != PAD)": "(tgt_in == PAD)"}, SEES_NOTHING),
        Mistake(
            {"embed_src_backward(dmemory)": "embed_src_backward(dx)"},
            "the source's embedding gets the gradient of the decoder's: it is what comes out of the encoder's layers",
        ),
        Mistake(
            {"encoder_backwards[i](dmemory)": "encoder_backwards[i](dx)"},
            "the encoder gets the gradient of the decoder's embedding: it is the sum of the gradients of the memory",
        ),
    ),
    result_names=("logits",),
    gradients=("grads",),
    title="the whole model, forward and backward",
    page="gradients/residual",
    task="""
        params: source_embedding, target_embedding, encoder and decoder ({"0": …, "1": …}, a layer each), output;
        src (B, S) and tgt_in (B, T): ids, n_heads -> logits (B, T, V) of each next token, and backward.

        Masks: is_src (B, 1, 1, S) and is_tgt (B, 1, 1, T), where an id is not PAD; is_past (T, T), True on and below the
        diagonal.
        Encoder: embed(params["source_embedding"], src), then each encoder_layer with is_src; the result is the memory.
        Decoder: embed(params["target_embedding"], tgt_in), then each decoder_layer(params, x, memory, is_past & is_tgt,
        is_src, n_heads), then linear(params["output"], x).

        embed and decoder_layer are in this file. Keep every backward function in a list. backward(dlogits) returns grads,
        with the names of params: it goes back through the decoder, whose layers return dx, dmemory, grads, adds up their
        dmemory, and goes back through the encoder. An embedding's backward function returns the gradient of its table.""",
    hints=(
        "is_src = (src != PAD)[:, None, None, :]; is_past = np.tri(tgt_in.shape[1], dtype=bool).",
        'memory, backward = encoder_layer(params["encoder"][str(i)], memory, is_src, n_heads) in a loop; append backward to a list.',
        'Begin with grads = {"encoder": {}, "decoder": {}} and dmemory = np.zeros_like(memory); for i in reversed(range(n)).',
        "grads[\"source_embedding\"] = embed_src_backward(dmemory), after the encoder's layers; the target's gets dx.",
    ),
    hint_for={"embedding": 4, "memory|reverse": 3, "encoder gets": 4, "grads|not written": 3},
)


def adam_cases(rng):
    """Two steps each of parameters in nested dicts, where dicts have arrays of the same name, at first of one shape."""

    def case(what, n, m, *settings, size=1):
        shapes = {
            "a": {"weight": (n, m), "bias": (m,)},
            "b": {"weight": (m, n)},
            "c": {"a": {"bias": (n,)}},
            "d": (n,),
        }
        three = [
            map_leaves(lambda shape: (size * draw(rng, *shape)).round(2), shapes) for _ in range(3)
        ]
        return Case(what, *three, *settings)

    n, m = sizes(rng, 2, low=2)
    return [
        case("a number in each array", 1, 1, 0.01, 0.9, 0.98, 1e-9),
        case("the usual settings", n, m, 0.01, 0.9, 0.98, 1e-9),
        case("other settings", n, m, 0.5, 0.5, 0.9, 1.0),
        case("large gradients", n, m, 0.01, 0.9, 0.98, 1e-9, size=100),
    ]


OTHER_BETAS = {
    "= beta1 * m + (1 - beta1)": "= beta2 * m + (1 - beta2)",
    "= beta2 * v + (1 - beta2)": "= beta1 * v + (1 - beta1)",
}
BETAS = "beta1 and beta2 are exchanged: beta1 is that of m, beta2 that of v"
SQUARES = "v is a mean of the squares of the gradient, g * g"
WITHOUT = (
    "means keeps m and v, without the correction, which would be applied again in the next step"
)

ADAM_STEP = AdamPart(
    course_name=NAME,
    one_page=PAGE,
    name="adam_step",
    cases=adam_cases,
    mistakes=(
        Mistake(
            {" / (1 - beta1**step)": "", " / (1 - beta2**step)": ""},
            "the bias correction is missing: the first step then has the wrong size",
        ),
        Mistake({" / (1 - beta1**step)": ""}, explanations.NO_CORRECTION_OF_M),
        Mistake({"v / (1 - beta2**step)": "v"}, explanations.NO_CORRECTION_OF_V),
        Mistake({"**step": "**(step + 1)"}, explanations.EXPONENT_TOO_LARGE),
        Mistake(
            {"**step": "**(step - 1)"},
            "the exponent of the bias correction is one too small: step is 1 for the first step, and 1 - beta**0 is 0",
        ),
        Mistake(
            {"**step": ""},
            "the exponent of the bias correction is missing: 1 - beta1**step, and the same for beta2",
        ),
        Mistake(OTHER_BETAS, BETAS),
        Mistake(
            {
                **OTHER_BETAS,
                "m / (1 - beta1**step)": "m / (1 - beta2**step)",
                "v / (1 - beta2**step)": "v / (1 - beta1**step)",
            },
            BETAS,
        ),
        Mistake(
            {"(np.sqrt(v / (1 - beta2**step)) + eps)": "np.sqrt(v / (1 - beta2**step) + eps)"},
            explanations.EPS_IN_ROOT,
        ),
        Mistake(
            {"np.sqrt(v / (1 - beta2**step))": "(v / (1 - beta2**step))"},
            "the root of v̂ is missing",
        ),
        Mistake(
            {"params[name] -= lr": "params[name] += lr"},
            "the step has the wrong sign: it has to go against the gradient, params[name] -= lr m̂ / (√v̂ + eps)",
        ),
        Mistake(
            {"params[name] -= lr": "params = params[name] - lr"},
            "the arrays of params have to change: params[name] -= …",
        ),
        Mistake(
            {"means[name] = m, v": "means[name] = m / (1 - beta1**step), v / (1 - beta2**step)"},
            WITHOUT,
        ),
        Mistake({"means[name] = m, v": "means[name] = m / (1 - beta1**step), v"}, WITHOUT),
        Mistake(
            {"        means[name] = m, v\n": ""}, "m and v are not kept in means for the next step"
        ),
        Mistake(
            {"means.setdefault(name, {})": "{}"},
            "the means of the inner dicts are not kept: they belong into means[name]",
        ),
        Mistake(
            {"means.setdefault(name, {})": "means"},
            "the inner dicts share one means: each needs its own, means[name]",
        ),
        Mistake({"* g * g": "* g"}, SQUARES),
        Mistake({"* g * g": "* 2 * g"}, SQUARES),
        Mistake({"* g * g": "* (g - 2)"}, SQUARES),
    ),
    argument_names=("params", "grads", "next_grads", "lr", "beta1", "beta2", "eps"),
    result_names=tuple(
        f"params{path} after step {step}"
        for step in (1, 2)
        for path in paths(adam_cases(np.random.default_rng(0))[0].args[0])
    ),
    title="a step of Adam",
    page="training/adam",
    task="""
        params and grads: nested dicts of arrays with the same names; means: a dict, at first {}, in which you keep what
        the next step needs; step: 1 for the first. Change params itself, not a copy of it, and return nothing:

            m = beta1 m + (1 - beta1) g            m̂ = m / (1 - beta1^step)
            v = beta2 v + (1 - beta2) g²           v̂ = v / (1 - beta2^step)
            params[name] -= lr m̂ / (√v̂ + eps)

        m and v are 0 before the first step, and means keeps them without the correction. For an inner dict, call
        adam_step with the inner params, grads and means.""",
    hints=(
        "for name, g in grads.items(): if isinstance(g, dict), call adam_step, and continue.",
        "m, v = means.get(name, (0.0, 0.0)), and at the end means[name] = m, v; means.setdefault(name, {}) is an inner dict's.",
    ),
    hint_for={"means|kept": 2},
)

EXERCISES = (FEED_FORWARD, SELF_ATTENTION, ENCODER_LAYER, TRANSFORMER, ADAM_STEP)
