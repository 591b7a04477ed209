"""Exercises 5 to 9: attention, a layer, and the whole model."""

from npformer.exercises import explanations
from npformer.exercises.exercise import Case, Mistake, draw, sizes
from npformer.exercises.gpt.page import layer, model, part, taken
from npformer.exercises.transformer import backward, forward
from npformer.exercises.transformer.forward import ROOT_OF_INT
from npformer.exercises.transformer.layers import (
    MISTAKES_OF_HEADS,
    MISTAKES_OF_PARTS,
    NORMS_EXCHANGED,
)

ATTENTION = taken(forward.ATTENTION)
ATTENTION_BACKWARD = taken(backward.ATTENTION_BACKWARD)


def self_attention_cases(rng):
    """With as many positions as passages, more and fewer."""
    B, T, H, K = sizes(rng, 4, low=2, high=5)
    K *= 2

    def case(what, B, T, H, K):
        D = H * K
        return Case(what, layer(rng, D)["attention"], draw(rng, B, T, D), H, draw(rng, B, T, D))

    return [
        case("one head, two positions", 1, 2, 1, 2),
        case("several heads", B, T, H, K),
        case("as many positions as passages", T, T, H, K),
        case("one position", B, 1, H, K),
        case("five positions", 2, 5, 3, 4),  # with two, a wrong mask may look like the right one
    ]


TURN = "(q, q_backward), (k, k_backward) = rotary(q), rotary(k)"
MASK = "np.tri(x.shape[1], dtype=bool)"
TURN_BACK = "(q_backward(dq), k_backward(dk), dv)"
NOT_TURNED_BACK = "dq and dk are gradients of the turned q and k: turn them back with the functions that rotary returned"

SELF_ATTENTION = part(
    name="self_attention",
    cases=self_attention_cases,
    mistakes=(
        Mistake(
            {MASK: "np.ones((x.shape[1], x.shape[1]), dtype=bool)"},
            "there is no causal mask: a position may see itself and those before it, np.tri(T, dtype=bool)",
        ),
        Mistake(
            {MASK: f"{MASK}.T"},
            "the causal mask is upside down: True on and below the diagonal, as np.tri has it",
        ),
        Mistake(
            {MASK: "np.tri(x.shape[1], k=-1, dtype=bool)"},
            "a position has to see itself, too: the diagonal of the mask is True",
        ),
        Mistake(
            {MASK: "np.tri(x.shape[1], k=1, dtype=bool)"},
            "each position also sees the next one: the mask is True on and below the diagonal, np.tri(T, dtype=bool)",
        ),
        Mistake(
            {MASK: f"{MASK} & ~np.tri(x.shape[1], k=-2, dtype=bool)"},
            "a position sees only itself and the one before: it may see all those before it, np.tri(T, dtype=bool)",
        ),
        Mistake(
            {MASK: "np.eye(x.shape[1], dtype=bool)"},
            "a position sees only itself: it may see those before it, too",
        ),
        Mistake(
            {MASK: "np.tri(x.shape[0], dtype=bool)"},
            "the mask has a row for each position: T is x.shape[1]",
        ),
        Mistake(
            {TURN: "q_backward = k_backward = lambda dy: dy"},
            "q and k are not turned: rotary is missing",
        ),
        Mistake(
            {TURN: "(q, q_backward), k_backward = rotary(q), lambda dy: dy"},
            "only q is turned: a score depends on a distance if both are",
        ),
        Mistake(
            {TURN: "q_backward, (k, k_backward) = lambda dy: dy, rotary(k)"},
            "only k is turned: a score depends on a distance if both are",
        ),
        Mistake(
            {TURN: "(q, q_backward), (k, k_backward), (v, _) = rotary(q), rotary(k), rotary(v)"},
            "v is turned, too: a position decides where to look, not what is found there",
        ),
        Mistake(
            {
                TURN: "q, k = (split_heads(rotary(merge_heads(part))[0], n_heads) for part in (q, k))\n    q_backward = k_backward = lambda dy: dy"
            },
            "q and k are turned before they are split: each head is turned alone, (B, H, T, K)",
        ),
        *MISTAKES_OF_HEADS,
        Mistake({TURN_BACK: "(dq, dk, dv)"}, NOT_TURNED_BACK),
        Mistake(
            {TURN_BACK: "(rotary(dq)[0], rotary(dk)[0], dv)"},
            "dq and dk are turned once more: turn them back with the functions that rotary returned",
        ),
        Mistake(
            {TURN_BACK: "(k_backward(dk), q_backward(dq), dv)"},
            "dq and dk are exchanged: q was the first part, k the second",
        ),
        Mistake(
            {TURN_BACK: "(q_backward(dq), k_backward(dk), k_backward(dv))"},
            "dv is turned, but v was not",
        ),
        Mistake({"split_heads(dheads, n_heads)": "dheads"}, explanations.NOT_SPLIT_AGAIN),
        Mistake(
            {"[merge_heads(part) for part in": "[part for part in"}, explanations.NOT_MERGED_AGAIN
        ),
        *MISTAKES_OF_PARTS,
        Mistake(
            {'{"qkv": qkv_grads, "out": out_grads}': '{"qkv": out_grads, "out": qkv_grads}'},
            explanations.MAPS_EXCHANGED,
        ),
    ),
    gradients=("dx", "grads"),
    float64_from=ROOT_OF_INT,
    title="causal self-attention of many heads, both directions",
    page="gradients/heads",
    task="""
        params: {"qkv": …, "out": …}, of the maps D -> 3D and D -> D, x (B, T, D), n_heads -> y (B, T, D), and backward.

        One linear map gives q, k, v side by side; split it into three, and each into heads; turn q and k with rotary;
        attention, with the causal mask (T, T), which is True on and below the diagonal; merge the heads; the linear map
        out. backward(dy) calls the backward functions in reverse order, and returns dx and
        grads = {"qkv": …, "out": …}. The backward pass of split_heads is merge_heads, and the other way round.""",
    hints=(
        "np.split(qkv, 3, axis=-1) gives the three parts; np.tri(T, dtype=bool) is the mask.",
        "q, q_backward = rotary(q), and the same for k: keep both functions. v is not turned.",
        "dheads, out_grads = out_backward(dy); attention_backward(split_heads(dheads, n_heads)) gives dq, dk, dv.",
        "Turn dq and dk back, merge the heads of all three, np.concatenate them, and call qkv_backward.",
    ),
    hint_for={
        "turn them back|dv is turned": 4,
        "two maps": 3,
        "exchanged|merged before|side by side|another order": 4,
        "turned|distance": 2,
        "has to be split|into the order|dx|not written": 3,
    },
)


def layer_cases(rng):
    """A passage, and batches."""
    B, T, H, K = sizes(rng, 4, low=2, high=5)
    K *= 2

    def case(what, B, T, H, K):
        D = H * K
        return Case(what, layer(rng, D), draw(rng, B, T, D), H, draw(rng, B, T, D))

    return [
        case("one passage, one head", 1, 2, 1, 2),
        case("a batch", B, T, H, K),
        case("one position", B, 1, H, K),
        case("five positions", 2, 5, 3, 4),
    ]


ATTEND = 'self_attention(params["attention"], h0, n_heads)'
FEED = 'feed_forward(params["feed_forward"], h1)'
INPUT_ITSELF = (
    "the result of a sublayer is added to its input, x0 or x1, not to the normalised input"
)
NORMALISED = (
    "what a sublayer reads is normalised: attention reads norm(x0), the feed-forward layer norm(x1)"
)
FED_WITH_X0 = "the feed-forward layer reads norm(x1), after the attention, not norm(x0)"
NORM_OF_ATTENDED = {
    ATTEND: ATTEND.replace("h0", "x0"),
    "x1 = x0 + attended": 'x1 = rms_norm(params["attention_norm"], x0 + attended)[0]',
}
NORM_OF_FED = {
    FEED: FEED.replace("h1", "x1"),
    "return x1 + fed": 'return rms_norm(params["feed_forward_norm"], x1 + fed)[0]',
}
NORM_OF_SUM = (
    "the sum is normalised, as in the Transformer of 2017: here it is what each sublayer reads"
)
PAST = "x0 and x1 are used twice: what goes past the two sublayers is missing in the gradients"

DECODER_LAYER = part(
    name="decoder_layer",
    cases=layer_cases,
    mistakes=(
        Mistake(
            {"x1 = x0 + attended": "x1 = h0 + attended", "return x1 + fed": "return h1 + fed"},
            INPUT_ITSELF,
        ),
        Mistake({"x1 = x0 + attended": "x1 = h0 + attended"}, INPUT_ITSELF),
        Mistake({"return x1 + fed": "return h1 + fed"}, INPUT_ITSELF),
        Mistake(
            {"x1 = x0 + attended": "x1 = attended"},
            "the residual connection round the attention is missing: x0 + attended",
        ),
        Mistake(
            {"return x1 + fed": "return fed"},
            "the residual connection round the feed-forward layer is missing: x1 + fed",
        ),
        Mistake({"x1 = x0 + attended": "x1 = x0"}, explanations.NO_ATTENDED),
        Mistake({"return x1 + fed": "return x1"}, explanations.NO_FED),
        Mistake({"return x1 + fed": "return x0 + fed"}, explanations.FED_ADDED_TO_X0),
        Mistake({ATTEND: ATTEND.replace("h0", "x0")}, NORMALISED),
        Mistake({FEED: FEED.replace("h1", "x1")}, NORMALISED),
        Mistake({ATTEND: ATTEND.replace("h0", "x0"), FEED: FEED.replace("h1", "x1")}, NORMALISED),
        Mistake(
            {FEED: FEED.replace("h1", "h0")},
            FED_WITH_X0,
        ),
        Mistake(
            {
                'rms_norm(params["feed_forward_norm"], x1)': 'rms_norm(params["feed_forward_norm"], x0)'
            },
            FED_WITH_X0,
        ),
        NORMS_EXCHANGED,
        Mistake(NORM_OF_ATTENDED | NORM_OF_FED, NORM_OF_SUM),
        Mistake(NORM_OF_ATTENDED, NORM_OF_SUM),
        Mistake(NORM_OF_FED, NORM_OF_SUM),
        Mistake(
            {"dx1 = dx2 + dnormed": "dx1 = dnormed", "return dx1 + dnormed": "return dnormed"}, PAST
        ),
        Mistake(
            {"return dx1 + dnormed": "return dnormed"},
            "x0 is used twice: what goes past the attention, dx1, is missing in the result",
        ),
        Mistake(
            {"dx1 = dx2 + dnormed": "dx1 = dnormed"},
            "x1 is used twice: what goes past the feed-forward layer, dx2, is missing",
        ),
        Mistake({"dx1 = dx2 + dnormed": "dx1 = dx2"}, explanations.NOT_THROUGH_FEED_FORWARD),
        Mistake(
            {"return dx1 + dnormed": "return dx2 + dnormed"},
            "what goes past the attention is the gradient of x1 = x0 + attended, not dx2",
        ),
        Mistake(
            {"return dx1 + dnormed": "return dx1 + dnormed + dx2"},
            "dx2 is counted twice: dx1 has it already, and x0 acts on x2 through x1 alone",
        ),
        Mistake(
            {"attend_backward(dx1)": "attend_backward(dx2)"},
            "attention gets the gradient of x1 = x0 + attended, not dx2",
        ),
        Mistake(
            {"dx1 = dx2 + dnormed": "dx1 = dx2 + dh1"},
            "the gradient has to go back through the second normalisation",
        ),
        Mistake(
            {"return dx1 + dnormed": "return dx1 + dh0"},
            "the gradient has to go back through the first normalisation",
        ),
    ),
    result_names=("x2",),
    gradients=("dx0", "grads"),
    title="a whole layer, forward and backward",
    page="gradients/residual",
    task="""
        params: those of attention, attention_norm, feed_forward, feed_forward_norm, under these names;
        x0 (B, T, D), n_heads -> x2 (B, T, D), and backward. With the normalisation before each sublayer,

            x1 = x0 + self_attention(norm(x0));  x2 = x1 + feed_forward(norm(x1)),  norm = rms_norm

        In backward(dx2), each sum gives its gradient to both of its terms, and what is used twice gets the sum of two
        gradients. It returns dx0 and grads, a dict with the four names of params. In the forward part give each value
        its own name: backward sees the last value of a name.""",
    hints=(
        "Four calls forward, each of which returns a backward function, and two sums. backward calls the four in reverse.",
        "x1 is used twice: dx1 is dx2 and what comes back through feed-forward and its normalisation.",
        "dh1, grads[…] = feed_backward(dx2); dnormed, grads[…] = norm2_backward(dh1); dx1 = dx2 + dnormed.",
    ),
    hint_for={"not dx2|normalisation": 3, "used twice|counted twice|dx0": 2, "grads": 3},
)


def gpt_cases(rng):
    """Two layers, and a vocabulary that is larger or smaller than the passages."""
    B, T, H, K = sizes(rng, 4, low=2, high=5)
    K *= 2

    def case(what, B, T, H, K, V):
        params = model(rng, H * K, n_layers=2, vocab=V)
        return Case(what, params, rng.integers(0, V, (B, T)), H, draw(rng, B, T, V))

    return [
        case("one passage, one head", 1, 2, 1, 2, 3),
        case("a batch, with ids that occur twice", B, T, H, K, 3),
        case("more different characters than there are in the passages", B, T, H, K, B * T + 2),
        case("five positions", 2, 5, 3, 4, 7),
    ]


IS_LAYER = ' if name != "norm"'
LAST_NORM = 'y, norm_backward = rms_norm(params["layers"]["norm"], x)'

WHOLE_MODEL = part(
    name="gpt",
    cases=gpt_cases,
    mistakes=(
        Mistake(
            {LAST_NORM: "y, norm_backward = x, lambda dy: (dy, params['layers']['norm'])"},
            "the last normalisation is missing, after the layers: its gain is params['layers']['norm']",
        ),
        Mistake(
            {
                "    for name in names:\n        x, ": "    x = x * x.shape[-1] ** 0.5\n    for name in names:\n        x, "
            },
            "the rows of the table are taken as they are: the factor √D belongs to positions that are added",
        ),
        Mistake(
            {"    def backward": "    logits = softmax(logits)\n\n    def backward"},
            "the logits are wanted as they are: softmax comes later, with the loss and in write",
        ),
        Mistake({IS_LAYER: ""}, '"norm" is not a layer: leave it out of the loop'),
        Mistake(
            {
                "x, layer_backwards[name] = decoder_layer": "_, layer_backwards[name] = decoder_layer"
            },
            "the layers have no effect: each reads what the one before it has returned, x, … = decoder_layer(…, x, n_heads)",
        ),
        Mistake(
            {"for name in names:": "for name in reversed(names):"},
            "the layers are called in the order of params['layers'], the last one last",
        ),
        Mistake(
            {"for name in reversed(names):": "for name in names:"},
            "the backward functions of the layers are called in reverse order",
        ),
        Mistake(
            {"layer_backwards[name](dx)": "layer_backwards[names[-1]](dx)"},
            "each layer has a backward function of its own: keep all of them, not the last one",
        ),
        Mistake(
            {
                'dx, grads["layers"][name] = layer_backwards': '_, grads["layers"][name] = layer_backwards'
            },
            "a layer's gradient goes on to the layer before it: dx, … = the backward function (dx)",
        ),
        Mistake(
            {
                'dx, grads["layers"]["norm"] = norm_backward(dy)': 'dx, grads["layers"]["norm"] = dy, norm_backward(dy)[1]'
            },
            "the gradient has to go back through the last normalisation before the layers",
        ),
        Mistake(
            {"embed_backward(dx)": "embed_backward(dy)"},
            "the table gets what the first layer returns, not dy",
        ),
        Mistake(
            {'linear(params["output"], y)': 'linear({"weight": params["embedding"].T}, y)'},
            "the output has a matrix of its own, params['output']: the table is not used again",
        ),
    ),
    result_names=("logits",),
    gradients=("grads",),
    title="the whole model, forward and backward",
    page="descendants/decoder-only",
    task="""
        params: {"embedding": the table, "layers": {"0": …, "1": …, "norm": …}, "output": …}, ids (B, T), n_heads ->
        logits (B, T, V) of each next character, and backward.

        embed(params["embedding"], ids), then a decoder_layer for each name in params["layers"] but "norm", in their
        order, then rms_norm with params["layers"]["norm"], then linear with params["output"].

        Keep every backward function. backward(dlogits) returns grads alone, with the names of params: those of the
        layers are {"layers": {"0": …, "1": …, "norm": …}}. The gradient of the table is what embed's function returns.""",
    hints=(
        'names = [name for name in params["layers"] if name != "norm"]; a dict keeps the backward function of each name.',
        'x, layer_backwards[name] = decoder_layer(params["layers"][name], x, n_heads) in a loop over names.',
        'Begin backward with grads = {"layers": {}}; output, norm, the layers in reversed(names), then embed_backward.',
    ),
    hint_for={"keep all": 1, "has returned": 2, "backward|gradient|grads|the table gets": 3},
)

EXERCISES = (ATTENTION, ATTENTION_BACKWARD, SELF_ATTENTION, DECODER_LAYER, WHOLE_MODEL)
