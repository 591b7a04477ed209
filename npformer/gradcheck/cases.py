"""One gradient check for each operation and each of its options: every dimension a different prime."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from npformer import reference as ops

B, H, T, S, K, KV, D, F, V = 2, 3, 5, 7, 11, 13, 17, 19, 23
RATE, KEY = 0.3, 2024


class Case(NamedTuple):
    """What ``gradcheck`` needs: ``f(*args)`` and ``f_backward(dy, *args)``."""

    operation: str
    option: str
    f: Callable
    f_backward: Callable
    args: dict


def all_cases(seed: int = 0) -> list[Case]:
    """Every operation that has a backward pass."""
    normal = np.random.default_rng(seed).standard_normal
    return [
        *_elementwise(normal),
        *_normalising(normal),
        *_linear(normal),
        *_convolution(normal),
        *_attention(normal, "attention", (B, H), T, S),
        *_attention(normal, "flash_attention", (B, H), T, S),
        *_attention(normal, "flash_attention", (), 67, 71, K=3, KV=2, size=", several tiles"),
        *_packed_attention(normal),
        *_scores(normal),
        *_tokens(normal),
        *_recurrent(normal),
    ]


def _elementwise(normal):
    x = away_from_zero(normal((B, T, D)))
    for name in ("relu", "gelu", "silu"):
        f, backward = getattr(ops, name), getattr(ops, f"{name}_backward")
        yield Case(name, "", f, backward, {"x": x})
    for name in ("tanh", "sigmoid"):
        f, backward = getattr(ops, name), getattr(ops, f"{name}_backward")
        yield Case(name, "", f, lambda dy, x, f=f, backward=backward: backward(dy, f(x)), {"x": x})
    yield Case(
        "dropout", "", lambda x: ops.dropout(x, RATE, KEY), lambda dy, x: ops.dropout_backward(dy, RATE, KEY), {"x": x}
    )
    heads = normal((B, H, T, K))
    yield Case("merge_heads", "", ops.merge_heads, lambda dy, x: ops.split_heads(dy, H), {"x": heads})
    packed = normal((B, T, H * K))
    yield Case("split_heads", "", lambda x: ops.split_heads(x, H), lambda dy, x: ops.merge_heads(dy), {"x": packed})


def _normalising(normal):
    for name in ("softmax", "log_softmax"):
        f, backward = getattr(ops, name), getattr(ops, f"{name}_backward")
        for option, axis in (("", ()), ("axis=0", (0,))):
            yield Case(
                name,
                option,
                lambda x, f=f, axis=axis: f(x, *axis),
                lambda dy, x, f=f, backward=backward, axis=axis: backward(dy, f(x, *axis), *axis),
                {"x": normal((T, S, K))},
            )
    yield Case(
        "layer_norm",
        "",
        lambda x, gain, bias: ops.layer_norm(x, gain, bias)[0],
        lambda dy, x, gain, bias: ops.layer_norm_backward(dy, x, gain, *ops.layer_norm(x, gain, bias)[1:]),
        {"x": 3 + normal((B, T, D)), "gain": normal(D), "bias": normal(D)},
    )


def _linear(normal):
    x, weight, bias = normal((B, T, D)), normal((D, F)), normal(F)
    yield Case("linear", "", ops.linear, ops.linear_backward, {"x": x, "weight": weight, "bias": bias})
    yield Case(
        "linear",
        "no bias",
        ops.linear,
        lambda dy, x, weight: ops.linear_backward(dy, x, weight)[:2],
        {"x": x, "weight": weight},
    )
    for activation in ("relu", "gelu", "silu"):

        def forward(x, weight, bias, activation=activation):
            return ops.linear_activation_dropout(x, weight, bias, activation, RATE, KEY)

        def backward(dy, x, weight, bias, activation=activation, forward=forward):
            _, h = forward(x, weight, bias)
            return ops.linear_activation_dropout_backward(dy, x, weight, bias, h, activation, RATE, KEY)

        yield Case(
            "linear_activation_dropout",
            activation,
            lambda *args, forward=forward: forward(*args)[0],
            backward,
            {"x": x, "weight": weight, "bias": bias},
        )
    yield Case(
        "linear_dropout_residual",
        "",
        lambda x, weight, bias, residual: ops.linear_dropout_residual(x, weight, bias, residual, RATE, KEY),
        lambda dy, x, weight, bias, _: ops.linear_dropout_residual_backward(dy, x, weight, bias, RATE, KEY),
        {"x": x, "weight": weight, "bias": bias, "residual": normal((B, T, F))},
    )


def _convolution(normal):
    for W, dilation in ((1, 1), (3, 1), (3, 2), (3, 4), (5, 2), (5, 4)):  # with a dilation of 4, taps beyond T = 5
        for causal in (False, True):
            option = f"W={W}, dilation={dilation}" + ", causal" * causal
            yield _convolution_case(normal, option, W, {"dilation": dilation, "causal": causal})
    yield _convolution_case(normal, "W=2, causal", 2, {"causal": True})
    yield _convolution_case(normal, "no bias", 3, {"dilation": 2}, bias=False)


def _convolution_case(normal, option, W, keywords, bias=True):
    args = {"x": normal((B, T, K)), "weight": normal((W, K, KV))} | ({"bias": normal(KV)} if bias else {})

    def backward(dy, *args):
        return ops.conv1d_backward(dy, *args, **keywords)[: len(args)]

    return Case("conv1d", option, lambda *args: ops.conv1d(*args, **keywords), backward, args)


def _attention(normal, name, batch, T, S, K=K, KV=KV, size=""):
    keep_mask = normal((*batch, T, S)) > 0
    keep_mask[..., 1, :] = False  # a query that may attend to nothing
    options = {
        "": {},
        "keep_mask": {"keep_mask": keep_mask},
        "keys masked": {"keep_mask": keep_mask[..., :1, :]},
        "queries masked": {"keep_mask": keep_mask[..., :, :1]},
        "causal": {"causal": True},
        "scale": {"scale": 0.7},
        "dropout": {"dropout_rate": RATE, "key": KEY},
        "all": {"keep_mask": keep_mask, "causal": True, "scale": 0.7, "dropout_rate": RATE, "key": KEY},
    }
    args = {"q": normal((*batch, T, K)), "k": normal((*batch, S, K)), "v": normal((*batch, S, KV))}
    for option, keywords in options.items():
        if size and option not in ("", "all"):
            continue
        yield _attention_case(name, option + size, keywords, args)
    if not size:  # more queries than keys: under a causal mask the first see nothing
        longer = {**args, "q": normal((*batch, S + 2, K))}
        yield _attention_case(name, "causal, T > S", {"causal": True}, longer)


def _attention_case(name, option, keywords, args):
    forward, backward = getattr(ops, name), getattr(ops, f"{name}_backward")
    saved = dict(keywords)
    if name == "attention":  # its weights already know the masks
        saved.pop("keep_mask", None)
        saved.pop("causal", None)

    def f_backward(dout, q, k, v):
        out, kept = forward(q, k, v, **keywords)
        if name == "attention":
            return backward(dout, q, k, v, kept, **saved)
        return backward(dout, q, k, v, out, kept, **saved)

    return Case(name, option.strip(", "), lambda q, k, v: forward(q, k, v, **keywords)[0], f_backward, args)


def _packed_attention(normal):
    keep_mask = normal((B, 1, 1, S)) > 0
    keep_mask[1] = False  # a sequence with nothing to attend to
    qkv, q, kv = normal((B, S, 3 * H * K)), normal((B, T, H * K)), normal((B, S, 2 * H * K))
    dropout = {"dropout_rate": RATE, "key": KEY}
    for option, keywords in {"": {}, "all": {"causal": True, **dropout}}.items():

        def backward(dout, qkv, keywords=keywords):
            saved = ops.self_attention(qkv, H, keep_mask, **keywords)
            return ops.self_attention_backward(dout, qkv, *saved, H, keep_mask, **keywords)

        yield Case(
            "self_attention",
            option,
            lambda qkv, keywords=keywords: ops.self_attention(qkv, H, keep_mask, **keywords)[0],
            backward,
            {"qkv": qkv},
        )

    def backward(dout, q, kv):
        saved = ops.cross_attention(q, kv, H, keep_mask, **dropout)
        return ops.cross_attention_backward(dout, q, kv, *saved, H, keep_mask, **dropout)

    yield Case(
        "cross_attention",
        "dropout",
        lambda q, kv: ops.cross_attention(q, kv, H, keep_mask, **dropout)[0],
        backward,
        {"q": q, "kv": kv},
    )


def _scores(normal):
    params_of = {
        "dot": {},
        "scaled_dot": {},
        "cosine": {},
        "bilinear": {"weight": normal((K, KV))},
        "additive": {"w_q": 0.3 * normal((K, D)), "w_k": 0.3 * normal((KV, D)), "w_score": normal(D)},
    }
    q, k, wide_k, v = normal((B, T, K)), normal((B, S, K)), normal((B, S, KV)), normal((B, S, F))
    keep_mask = normal((B, T, S)) > 0
    keep_mask[:, 1] = False  # a query that may attend to nothing
    for score, params in params_of.items():
        name, given = f"{score}_score", {"q": q, "k": wide_k if params else k}
        yield Case(name, "", getattr(ops, name), getattr(ops, f"{name}_backward"), given | params)
        for option, keywords in {"": {}, ", all": {"keep_mask": keep_mask, "causal": True}}.items():
            yield _score_attention_case(score, score + option, keywords, {**given, "v": v, **params})
    yield Case("exp_cosine", "", ops.exp_cosine, ops.exp_cosine_backward, {"q": q, "k": k})
    yield Case(
        "soft_lookup",
        "exp_cosine",
        lambda *args: ops.soft_lookup(*args, ops.exp_cosine),
        lambda dout, *args: ops.soft_lookup_backward(dout, *args, ops.exp_cosine, ops.exp_cosine_backward),
        {"query": q, "keys": k, "values": v},
    )


def _score_attention_case(score, option, keywords, args):
    def forward(q, k, v, *params):
        return ops.score_attention(q, k, v, score, params, **keywords)

    def backward(dout, q, k, v, *params):
        _, weights = forward(q, k, v, *params)
        return ops.score_attention_backward(dout, q, k, v, weights, score, params)

    return Case("score_attention", option, lambda *args: forward(*args)[0], backward, args)


def _tokens(normal):
    ids = np.array([[3, 1, 4, 1, 5], [2, 6, 5, 0, 0]])  # (B, T): some repeated, some padding
    positions = normal((T, D))
    table = {"table": normal((V, D))}
    yield Case(
        "embedding",
        "",
        lambda table: ops.embedding(ids, table),
        lambda dy, table: ops.embedding_backward(dy, ids, table.shape),
        table,
    )
    yield Case(
        "embed_tokens",
        "",
        lambda table: ops.embed_tokens(ids, table, positions, 0, RATE, KEY),
        lambda dy, table: ops.embed_tokens_backward(dy, ids, table.shape, 0, RATE, KEY),
        table,
    )
    for keywords in ({}, {"ignore_id": 0}, {"label_smoothing": 0.1}, {"ignore_id": 0, "label_smoothing": 0.1}):
        yield Case(
            "cross_entropy",
            ", ".join(keywords),
            lambda logits, keywords=keywords: ops.cross_entropy(logits, ids, **keywords)[0],
            lambda dloss, logits, keywords=keywords: dloss * ops.cross_entropy(logits, ids, **keywords)[1],
            {"logits": normal((B, T, V))},
        )
    for keywords in ({}, {"ignore_id": 0, "label_smoothing": 0.1}):
        yield Case(
            "paired_cross_entropy",
            ", ".join(keywords),
            lambda logits, keywords=keywords: ops.paired_cross_entropy(logits, ids[0], 0.7, **keywords)[0],
            lambda dloss, logits, keywords=keywords: (
                dloss * ops.paired_cross_entropy(logits, ids[0], 0.7, **keywords)[1]
            ),
            {"logits": normal((2, T, V))},
        )
    options = {"ignore_id": 0, "label_smoothing": 0.1, "n_tokens": 11}

    def paired_backward(dloss, x, weight, bias):
        _, dlogits = ops.linear_paired_cross_entropy(x, weight, bias, ids[0], 0.7, **options)
        return ops.linear_backward(dloss * dlogits, x, weight, bias)

    yield Case(
        "linear_paired_cross_entropy",
        "all",
        lambda x, weight, bias: ops.linear_paired_cross_entropy(x, weight, bias, ids[0], 0.7, **options)[0],
        paired_backward,
        {"x": normal((2, T, D)), "weight": normal((D, V)), "bias": normal(V)},
    )

    def backward(dloss, x, weight, bias):
        _, dlogits = ops.linear_cross_entropy(x, weight, bias, ids, **options)
        return ops.linear_backward(dloss * dlogits, x, weight, bias)

    yield Case(
        "linear_cross_entropy",
        "all",
        lambda x, weight, bias: ops.linear_cross_entropy(x, weight, bias, ids, **options)[0],
        backward,
        {"x": normal((B, T, D)), "weight": normal((D, V)), "bias": normal(V)},
    )


def away_from_zero(x, gap=0.01):
    """Moved so that no entry is near the kink of relu, where there is no derivative to check."""
    return x + gap * np.where(x < 0, -1, 1)


def _recurrent(normal):
    keep_mask = normal((B, T)) > -0.5
    first = {"h0": normal((B, D)), "c0": normal((B, D))}
    for reverse, mask in ((False, None), (True, keep_mask)):
        option = "reverse, keep_mask" if reverse else ""
        options = {"keep_mask": mask, "reverse": reverse}
        yield Case(
            "gru",
            option,
            lambda *args, options=options: ops.gru(*args, **options)[0],
            lambda dy, x_gates, h0, weight, bias, options=options: ops.gru_backward(
                dy, h0, weight, *ops.gru(x_gates, h0, weight, bias, **options), **options
            ),
            {"x_gates": normal((B, T, 3 * D)), "h0": first["h0"], "weight": normal((D, 3 * D)), "bias": normal(D)},
        )
        yield Case(
            "lstm",
            option,
            lambda *args, options=options: np.stack(ops.lstm(*args, **options)[:2]),
            lambda dy, x_gates, h0, c0, weight, options=options: ops.lstm_backward(
                *dy, h0, c0, weight, *ops.lstm(x_gates, h0, c0, weight, **options), **options
            ),
            {"x_gates": normal((B, T, 4 * D)), **first, "weight": normal((D, 4 * D))},
        )
