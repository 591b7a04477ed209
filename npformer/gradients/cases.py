"""The table of cases: the options with which each operation is checked, and the tolerances for
kernels.

``npformer gradcheck``, the tests of gradients, parity, dtypes, poison and bad input, the fuzzing
and the mutations all read it. Arguments are drawn from the contracts, so one line in the table adds
an operation to all of these tests.
"""

from npformer import reference
from npformer.gradients.case import Case
from npformer.gradients.drawing import (
    SIZES,
    away_from_zero,
    bias,
    mask,
    mask_of_rows,
    mean_of_squares,
    params,
    positions,
    words,
)
from npformer.operations.settings import Llama3Scaling
from npformer.reference.math.activations import ACTIVATIONS, INPUTS

CASES: list[Case] = []


def add(names, *options, bound, backward_bound=None, **sizes):
    """Add one case for each of these operations and each of these options."""
    if "leading" in sizes:  # dots are no name
        sizes["..."] = sizes.pop("leading")
    if backward_bound is None:
        backward_bound = bound
    for name in names.split():
        CASES.extend(Case(name, x, sizes, bound, backward_bound) for x in options or ({},))


def add_attention(names, scores, *more, bound=16, backward_bound=32, **sizes):
    """Add the cases of attention operations, where ``scores`` are the axes of their scores."""
    *batch, T, S = scores.split()
    mask_of_keys = mask(" ".join([*batch, "1", S]))
    mask_of_queries = mask(" ".join([*batch, T, "1"]))
    without_bias = [
        {"keep_mask": mask(scores)},
        {"keep_mask": mask_of_keys},
        {"keep_mask": mask_of_queries},
        {"keep_mask": mask(S)},
        {"keep_mask": None, "causal": True},
        {"keep_mask": None, **DROPOUT},
        {"keep_mask": mask(scores), "causal": True, **DROPOUT},
        *more,
        {"keep_mask": None, "softcap": 0.7},
        {"keep_mask": mask(scores), **with_bias(scores), "softcap": 3.0},
    ]
    options = [{"keep_mask": None}, *({"bias": None, **x} for x in without_bias)]
    bounds = {"bound": bound, "backward_bound": backward_bound}
    add(names, *options, **bounds, **sizes)
    if T != S:  # with a causal mask and more queries than keys, the first queries see no key
        few_keys = {"keep_mask": None, "causal": True, "bias": None}
        add(names, few_keys, **bounds, **{**sizes, "T": 9})


def add_score(score, *axes, **sizes):
    """Add the cases of attention with a score whose parameters have these axes."""
    options = {"score": score, "params": params(axes)}
    masked = {"keep_mask": mask("... T S"), "causal": True}
    add("score_attention", {**options, "keep_mask": None}, {**options, **masked}, bound=32, **sizes)


def with_bias(axes):
    """The options of a case with a bias on the scores that has these axes."""
    return {"bias": bias(axes), "causal": True, **DROPOUT}


def bias_alone(axes):
    """The options of a case with a bias, and nothing else."""
    return {"keep_mask": None, "bias": bias(axes)}


DROPOUT = {"dropout_rate": 0.3, "dropout_key": 2024}
NO_DROPOUT = {"dropout_rate": 0.0, "dropout_key": None}
LOSS: list[dict] = [
    {"ignore_id": None},
    {"ignore_id": 0},
    {"label_smoothing": 0.1},
    {"ignore_id": 0, "label_smoothing": 0.1, "n_tokens": 100},
    {"ignore_id": 0, "loss_scale": 8.0},
]
NUMBERS: list[dict] = [
    {"keep_mask": None},
    {},
    {"keep_mask": mask_of_rows, "n_tokens": 100},
    {"loss_scale": 8.0},
]
TOKENS = {"ids": words("... T"), "pad_id": 0}
TILES: dict = {"bound": 16, "backward_bound": 32, "leading": (), "T": 67, "S": 71, "K": 3, "Kv": 2}

add("relu", {"x": away_from_zero}, bound=0, leading=(2, 5, 17))
add("tanh sigmoid", bound=0, leading=(2, 5, 17))
add("gelu gelu_erf silu", bound=4, leading=(2, 5, 17))
add("swiglu", bound=4)
for rate in (0.3, 0.0):
    add("dropout", {"dropout_rate": rate, "dropout_key": 7}, bound=0, leading=(2, 5, 17))
add("softmax log_softmax", {}, {"axis": 0}, {"axis": 1}, bound=4, leading=(5, 7, 11))
add("split_heads merge_heads", bound=0, leading=(2,))
add("layer_norm rms_norm", {}, {"eps": 0.1}, bound=8)
add("product", bound=8)
add("linear", {}, {"bias": None}, bound=8)

with_activations = [
    *({"activation": name, **NO_DROPOUT} for name in ACTIVATIONS if INPUTS[name] == 1),
    {"activation": "gelu", **DROPOUT},
    {"activation": "swiglu", **DROPOUT},
    {"activation": "relu", "bias": None, **DROPOUT},
]
# dh is rounded before two products.
add("linear_activation_dropout", *with_activations, bound=8, backward_bound=32)
add("linear_dropout_residual", DROPOUT, {"bias": None}, bound=8)

add("conv1d", {}, {"bias": None}, {"causal": True}, {"dilation": 2}, bound=16)
add("conv1d", {"dilation": 9, "causal": True}, bound=16)
add("conv1d", {"dilation": 4}, {"dilation": 2, "causal": True}, bound=16, W=5)
add("conv1d", {"causal": True}, bound=16, W=2)

scaled = {"keep_mask": None, "scale": 0.7}
biases = [with_bias("T S"), bias_alone("... 1 S")]
add_attention("attention flash_attention", "... T S", scaled, *biases)
add_attention("self_attention", "B H T T", with_bias("B H T T"), bias_alone("H 1 T"))
add_attention("cross_attention", "B H T S", with_bias("B 1 1 S"), bias_alone("T S"))
add_attention("self_attention", "B H T T", H=4, G=2)
one_head = {"bound": 16, "backward_bound": 32, "H": 4, "G": 1}
add("cross_attention", {"bias": None}, with_bias("B H T S"), **one_head)
add("flash_attention", {"bias": None, "keep_mask": None}, with_bias("T S"), **TILES)
add("flash_attention", {**with_bias("T S"), "softcap": 0.7}, **TILES)
add("flash_attention", {"bias": None, **DROPOUT}, {"causal": True}, **TILES)
add("cached_attention", {}, {"bias": None}, {"keep_mask": None, "bias": None}, bound=16)
add("cached_attention", with_bias("H 1 S"), {"bias": None, "softcap": 0.7}, bound=16, H=4, G=2)

add("log_softmax_top_k", {"k": 4}, {"k": 1}, {"k": 100}, bound=4)
backwards = {"reverse": True, "keep_mask": None}
padded = {"keep_mask": mask("B T", above=-0.5), "reverse": True}
add("gru lstm", {"keep_mask": None}, backwards, padded, bound=16, D=7)
add("gru", {}, bound=16, D=7)
add("lstm", {"dcells": None}, bound=16, D=7)

add("dot_score scaled_dot_score cosine_score bilinear_score is_same exp_cosine", bound=8)
add("additive_score", bound=8, backward_bound=32)
for score in ("dot", "scaled_dot", "cosine"):
    add_score(score, Kk=SIZES["Kq"])
add_score("bilinear", "Kq Kk")
add_score("additive", "Kq A", "Kk A", "A")
backward = reference.exp_cosine_backward
lookup: dict = {"similarity": reference.exp_cosine, "similarity_backward": backward}
add("soft_lookup", lookup, bound=16)

add("embedding", TOKENS, bound=0, backward_bound=4, leading=(2,))
add("embed_tokens", {**TOKENS, **DROPOUT}, {**TOKENS, **NO_DROPOUT}, bound=4, leading=(2,))
add("embed_tokens", {**TOKENS, "positions": None}, bound=4, leading=(2,))
add("embed_tokens", {**TOKENS, "scaled": False, "pad_id": -1}, bound=4, leading=(2,))
slow = {"base": 500.0, "scaling": 4.0, "pairs": "interleaved"}
add("rotary", {}, slow, bound=4, P=2, M=4)
scalings = [Llama3Scaling(8.0, original_max_len=n) for n in (9, 50)]  # which stretch more, or less
add("rotary", *({"llama3": scaling} for scaling in scalings), bound=4, P=2, M=4)
add("rotary", {"positions": positions}, bound=4, P=0, M=1)

with_words = {"targets": words("...")}
pairs = {**with_words, "consistency": 0.7}
of_words = [{**with_words, **options} for options in LOSS]
of_pairs = [{**pairs, **options} for options in LOSS]
add("cross_entropy linear_cross_entropy", *of_words, bound=8, leading=(2, 5))
add("linear_cross_entropy", {**with_words, "bias": None}, bound=8, leading=(2, 5))
add("paired_cross_entropy linear_paired_cross_entropy", *of_pairs, bound=16, leading=(5,))
add("mse_loss", *NUMBERS, bound=4, leading=(2, 5, 17))
add("huber_loss", *NUMBERS, {"delta": 0.4}, bound=4, leading=(2, 5, 17))

add("global_norm", bound=4, leading=(1009,))
add("norms_of_blocks", bound=4, n=10007)
with_momentum = {"lr": 0.1, "momentum": 0.9}
add("sgd_update", {**with_momentum, "grad_scale": 0.7}, {"lr": 0.1, "velocity": None}, bound=4)
add("sgd_update", {**with_momentum, "nesterov": True}, bound=4)
with_decay = {"lr": 0.1, "weight_decay": 0.01, "grad_scale": 0.7}
add("adam_update", {**with_decay, "step": 3, "v": mean_of_squares}, bound=4)
add("lion_update", with_decay, bound=4)
