"""Every operation of the reference with one set of valid arguments, for tests that ask the same of all."""

import numpy as np

import npformer as npf

B, H, T, S, K, KV, D, F, V = 2, 3, 5, 7, 11, 13, 17, 19, 23
DROPOUT = {"rate": 0.3, "key": 7}
NOT_IN_THE_TABLE = {  # these take no arrays of floats, or have a file of their own
    "adam_update",
    "causal_mask",
    "derive_key",
    "from_additive",
    "global_norm",
    "padding_mask",
    "random_bits",
    "sgd_update",
    "sinusoidal_encoding",
    "split_key",
    "to_additive",
}


def valid_calls(dtype="float64"):
    """``{name of the operation: {name of the argument: value}}``, the saved arrays being what the forward returns."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape).astype(dtype)

    x, dy, gain, bias = normal(B, T, D), normal(B, T, D), normal(D), normal(D)
    _, mean, rstd = npf.layer_norm(x, gain, bias)

    weight, wide_bias, wide_dy = normal(D, F), normal(F), normal(B, T, F)
    linear = {"x": x, "weight": weight, "bias": wide_bias}
    _, h = npf.linear_activation_dropout(**linear, activation="gelu", **DROPOUT)

    conv = {"x": x, "weight": normal(3, D, F), "bias": wide_bias, "dilation": 2}

    heads = normal(B, H, T, K)
    head_options = {"n_heads": H, "keep_mask": rng.standard_normal((B, 1, 1, S)) > 0, "dropout_rate": 0.3, "key": 7}
    own = {"qkv": normal(B, S, 3 * H * K), **head_options, "causal": True}
    other = {"q": normal(B, T, H * K), "kv": normal(B, S, 2 * H * K), **head_options}
    own_saved = dict(zip(("out", "logsumexp"), npf.self_attention(**own), strict=True))
    other_saved = dict(zip(("out", "logsumexp"), npf.cross_attention(**other), strict=True))

    qkv = {"q": normal(B, H, T, K), "k": normal(B, H, S, K), "v": normal(B, H, S, KV)}
    dout = normal(B, H, T, KV)
    options = {"scale": 0.7, "dropout_rate": 0.3, "key": 7}
    masks = {"keep_mask": rng.standard_normal((B, H, T, S)) > 0, "causal": True}
    _, weights = npf.attention(**qkv, **masks, **options)
    out, logsumexp = npf.flash_attention(**qkv, **masks, **options)

    at = rng.integers(0, V, (B, S))
    layer = npf.Transformer(V, V, d_model=H * K, n_heads=H, n_layers=1, d_ff=F).init(0)["decoder"]["0"]
    layer = npf.tree.map_leaves(lambda x: x.astype(dtype), layer)
    step = {"params": layer, "kv": normal(V, 2 * H * K), "memory_kv": normal(V, 2 * H * K)}
    newest = np.array([[3, 4, 5], [6, 7, 8]])
    cached = {"q": normal(B, H * K), "kv": normal(V, 2 * H * K), "at": at, "n_heads": H}

    kept = rng.standard_normal((B, T)) > -0.5
    recurrence = {"keep_mask": kept, "reverse": True}
    first = {"h0": normal(B, D), "c0": normal(B, D)}
    gru = {"x_gates": normal(B, T, 3 * D), "h0": first["h0"], "weight": 0.2 * normal(D, 3 * D), "bias": bias}
    lstm = {"x_gates": normal(B, T, 4 * D), **first, "weight": 0.2 * normal(D, 4 * D)}
    gru_saved = dict(zip(("states", "gates"), npf.gru(**gru, **recurrence), strict=True))
    lstm_saved = dict(zip(("states", "cells", "gates"), npf.lstm(**lstm, **recurrence), strict=True))
    gru_back = {"dstates": dy, "h0": gru["h0"], "weight": gru["weight"], **gru_saved}
    lstm_back = {"dstates": dy, "dcells": x, **first, "weight": lstm["weight"], **lstm_saved}
    same_width = {"q": normal(B, T, K), "k": normal(B, S, K)}
    other_width = {"q": normal(B, T, K), "k": normal(B, S, KV)}
    hidden_layer = {"w_q": normal(K, D), "w_k": normal(KV, D), "w_score": normal(D)}
    dscores, scored_masks = normal(B, T, S), {"keep_mask": rng.standard_normal((B, T, S)) > 0, "causal": True}
    scored = {**other_width, "v": normal(B, S, F), "score": "additive", "params": tuple(hidden_layer.values())}
    _, scored_weights = npf.score_attention(**scored, **scored_masks)
    lookup = {"query": normal(B, T, K), "keys": normal(B, S, K), "values": normal(B, S, F)}
    lookup["similarity"] = npf.exp_cosine

    ids = np.array([[3, 1, 4, 1, 5], [2, 6, 5, 0, 0]])
    agreeing = {"consistency": 0.7, "ignore_id": 1, "label_smoothing": 0.1}
    table = normal(V, D)
    return {
        "relu": {"x": x},
        "relu_backward": {"dy": dy, "x": x},
        "gelu": {"x": x},
        "gelu_backward": {"dy": dy, "x": x},
        "silu": {"x": x},
        "silu_backward": {"dy": dy, "x": x},
        "tanh": {"x": x},
        "tanh_backward": {"dy": dy, "y": npf.tanh(x)},
        "sigmoid": {"x": x},
        "sigmoid_backward": {"dy": dy, "y": npf.sigmoid(x)},
        "softmax": {"x": x},
        "softmax_backward": {"dy": dy, "y": npf.softmax(x)},
        "log_softmax": {"x": x},
        "log_softmax_backward": {"dy": dy, "y": npf.log_softmax(x)},
        "dropout": {"x": x, **DROPOUT},
        "dropout_backward": {"dy": dy, **DROPOUT},
        "layer_norm": {"x": x, "gain": gain, "bias": bias},
        "layer_norm_backward": {"dy": dy, "x": x, "gain": gain, "mean": mean, "rstd": rstd},
        "linear": linear,
        "linear_backward": {"dy": wide_dy, **linear},
        "linear_activation_dropout": {**linear, "activation": "gelu", **DROPOUT},
        "linear_activation_dropout_backward": {"dy": wide_dy, **linear, "h": h, "activation": "gelu", **DROPOUT},
        "linear_dropout_residual": {**linear, "residual": wide_dy, **DROPOUT},
        "linear_dropout_residual_backward": {"dy": wide_dy, **linear, **DROPOUT},
        "conv1d": conv,
        "conv1d_backward": {"dy": wide_dy, **conv},
        "split_heads": {"x": normal(1, 3, H * K), "n_heads": H},
        "merge_heads": {"x": heads},
        "self_attention": own,
        "self_attention_backward": {"dout": normal(B, S, H * K), **own, **own_saved},
        "cross_attention": other,
        "cross_attention_backward": {"dout": normal(B, T, H * K), **other, **other_saved},
        "attention": {**qkv, **masks, **options},
        "attention_backward": {"dout": dout, **qkv, "weights": weights, **options},
        "flash_attention": {**qkv, **masks, **options},
        "flash_attention_backward": {"dout": dout, **qkv, "out": out, "logsumexp": logsumexp, **masks, **options},
        "dot_score": same_width,
        "dot_score_backward": {"dscores": dscores, **same_width},
        "scaled_dot_score": same_width,
        "scaled_dot_score_backward": {"dscores": dscores, **same_width},
        "cosine_score": same_width,
        "cosine_score_backward": {"dscores": dscores, **same_width},
        "bilinear_score": {**other_width, "weight": normal(K, KV)},
        "bilinear_score_backward": {"dscores": dscores, **other_width, "weight": normal(K, KV)},
        "additive_score": {**other_width, **hidden_layer},
        "additive_score_backward": {"dscores": dscores, **other_width, **hidden_layer},
        "score_attention": {**scored, **scored_masks},
        "score_attention_backward": {"dout": normal(B, T, F), **scored, "weights": scored_weights},
        "is_same": same_width,
        "exp_cosine": same_width,
        "exp_cosine_backward": {"dy": dscores, **same_width},
        "soft_lookup": lookup,
        "soft_lookup_backward": {"dout": wide_dy, **lookup, "similarity_backward": npf.exp_cosine_backward},
        "cached_attention": {**cached, "keep_mask": rng.standard_normal((B, S)) > 0},
        "decoder_layer_step": {"x0": normal(B, H * K), **step, "at": newest, "memory_at": at, "n_heads": H},
        "log_softmax_top_k": {"x": normal(T, V), "k": 4},
        "gru": {**gru, **recurrence},
        "gru_backward": {**gru_back, **recurrence},
        "lstm": {**lstm, **recurrence},
        "lstm_backward": {**lstm_back, **recurrence},
        "product": {"a": heads, "b": qkv["v"][..., :K, :].swapaxes(-1, -2)[..., :K, :]},
        "embedding": {"ids": ids, "table": table},
        "embedding_backward": {"dy": dy, "ids": ids, "table_shape": (V, D)},
        "embed_tokens": {"ids": ids, "table": table, "positions": normal(T, D), "pad_id": 0, **DROPOUT},
        "embed_tokens_backward": {"dy": dy, "ids": ids, "table_shape": (V, D), "pad_id": 0, **DROPOUT},
        "cross_entropy": {"logits": wide_dy, "targets": ids, "ignore_id": 0, "label_smoothing": 0.1},
        "linear_cross_entropy": {**linear, "targets": ids, "ignore_id": 0, "label_smoothing": 0.1, "n_tokens": 20},
        "paired_cross_entropy": {"logits": wide_dy, "targets": ids[0], **agreeing},
        "linear_paired_cross_entropy": {**linear, "targets": ids[0], **agreeing, "n_tokens": 20},
    }


def arrays_of(result):
    """What an operation returned, as a list of arrays."""
    return list(result) if isinstance(result, tuple) else [result]
