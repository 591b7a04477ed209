"""Operators of ONNX as calls of npformer's operations.

Each function takes a backend, the inputs of a node (None where it leaves one out) and its
attributes, under ONNX's names, and yields the outputs of the node, once for each way in which
npformer computes them: the first way has all of them, the others may have None, or leave out the
last ones. What the operations cannot express raises ``NotExpressed``.
"""

from functools import partial, reduce

import numpy as np

from npformer.operations.settings import AttentionSettings
from npformer.reference import causal_mask


class NotExpressed(Exception):
    """Why a node cannot be computed with npformer's operations."""


def attention(ops, q, k, v, *others, q_num_heads=None, kv_num_heads=None, **attributes):
    if q.ndim == 4:
        yield from attention_of_heads(ops, q, k, v, *others, **attributes)
        return
    q = ops.split_heads(q, q_num_heads)
    k = ops.split_heads(k, kv_num_heads)
    v = ops.split_heads(v, kv_num_heads)
    for out, *rest in attention_of_heads(ops, q, k, v, *others, **attributes):
        yield ops.merge_heads(out), *rest


def attention_of_heads(
    ops,
    q,
    k,
    v,
    mask=None,
    past_key=None,
    past_value=None,
    n_keys=None,
    *,
    scale=None,
    softcap=None,
    qk_matmul_output_mode=0,
    softmax_precision=None,  # npformer computes it in float32, or in float64 if that is given
    **hiding,
):
    n_past = 0
    if past_key is not None:
        n_past = past_key.shape[2]
        k = np.concatenate([past_key, k], axis=2)
        v = np.concatenate([past_value, v], axis=2)
    B, H, T, K = q.shape
    G, S = k.shape[1:3]
    keep_mask, bias, causal = masks(ops, T, S, mask, n_past, n_keys, **hiding)
    scale = K**-0.5 if scale is None else scale
    options = {"causal": causal, "scale": scale, "softcap": softcap or None}
    keys = np.repeat(k, H // G, axis=1)
    values = np.repeat(v, H // G, axis=1)

    # A query that may attend to no key has the output 0, in ONNX and in npformer, and a mask may be
    # -inf in the bias.
    scores = ops.dot_score(q, keys) * q.dtype.type(scale)
    capped = softcap * ops.tanh(scores / softcap) if softcap else scores
    masked = capped if bias is None else capped + bias
    if causal:
        masked = np.where(causal_mask(T, S), masked, hidden_in(q))
    if keep_mask is not None:
        masked = np.where(keep_mask, masked, hidden_in(q))
    weights = ops.softmax(masked)
    stages = [scores, capped, masked, weights]
    yield ops.product(weights, values), k, v, stages[qk_matmul_output_mode]

    arrays = q, keys, values, keep_mask
    out, weights = ops.attention(*arrays, bias=bias, **options)
    yield out, None, None, weights if qk_matmul_output_mode == 3 else None
    out, *_ = ops.flash_attention(*arrays, bias=bias, **options)
    yield (out,)

    if v.shape[-1] != K:
        return
    settings = AttentionSettings(H, n_kv_heads=G, **options)
    queries = ops.merge_heads(q)
    kv = np.concatenate([ops.merge_heads(k), ops.merge_heads(v)], axis=-1)
    out, *_ = ops.cross_attention(queries, kv, settings, keep_mask, bias=bias)
    yield (ops.split_heads(out, H),)
    if T == S:
        qkv = np.concatenate([queries, kv], axis=-1)
        out, *_ = ops.self_attention(qkv, settings, keep_mask, bias=bias)
        yield (ops.split_heads(out, H),)
    if T == 1:
        seen = np.broadcast_to(True if keep_mask is None else keep_mask, (B, 1, 1, S))
        entries = kv.reshape(B * S, -1)
        at = np.arange(B * S).reshape(B, S)
        out = ops.cached_attention(queries[:, 0], entries, at, settings, seen, bias)
        yield (ops.split_heads(out[:, None], H),)


def hidden_in(x):
    """The score of what may not be attended to, in the dtype of an array."""
    return x.dtype.type(-np.inf)


def masks(
    ops,
    T,
    S,
    mask,
    n_past,
    n_keys,
    *,
    is_causal=False,
    left_window_size=-1,
    right_window_size=-1,
):
    """keep_mask, bias and causal of an attention.

    ONNX counts the position of a query among the keys from the end of the past ones, or of the
    ``n_keys`` of its sentence; npformer's ``causal`` takes the queries as the last of the keys.
    """
    first = n_past if n_keys is None else n_keys[:, None, None, None] - T
    query = first + np.arange(T)[:, None]
    key = np.arange(S)
    causal = bool(is_causal and n_keys is None and first == S - T)
    keep = []
    bias = None
    if is_causal and not causal:
        keep.append(key <= query)
    if left_window_size >= 0:
        keep.append(query - key <= left_window_size)
    if right_window_size >= 0:
        keep.append(key - query <= right_window_size)
    if n_keys is not None:
        keep.append(key < n_keys[:, None, None, None])
    if mask is not None:
        missing = S - mask.shape[-1]
        around = [(0, 0)] * (mask.ndim - 1) + [(0, missing)]
        is_additive = mask.dtype != bool
        mask = np.pad(mask, around, constant_values=-np.inf if is_additive else False)
        if not is_additive:
            keep.append(mask)
        elif np.isin(mask, [0, -np.inf]).all():
            keep.append(ops.from_additive(mask))
        else:
            bias = mask
    keep_mask = reduce(np.logical_and, keep) if keep else None
    return keep_mask, bias, causal


def flex_attention(ops, q, k, v, *, scale=None, score_mod=None, prob_mod=None):
    """The functions of the scores and of the weights are graphs that the node brings along."""
    if score_mod is None and prob_mod is None:
        yield from attention(ops, q, k, v, scale=scale)
        return
    H, K = q.shape[1], q.shape[3]
    G = k.shape[1]
    scale = K**-0.5 if scale is None else scale
    keys = np.repeat(k, H // G, axis=1)
    values = np.repeat(v, H // G, axis=1)
    scores = ops.dot_score(q, keys) * q.dtype.type(scale)
    weights = ops.softmax(result_of(score_mod, scores))
    yield (ops.product(result_of(prob_mod, weights), values),)

    bias = result_of(score_mod, np.zeros_like(scores))
    is_bias = (result_of(score_mod, np.ones_like(scores)) == bias + 1).all()
    # then attention itself computes it; where a key is hidden, the bias is -inf
    if is_bias and prob_mod is None:
        keep_mask = ops.from_additive(np.where(np.isneginf(bias), bias, 0))
        bias = np.where(keep_mask, bias, 0)
        for operation in (ops.attention, ops.flash_attention):
            out, *_ = operation(q, keys, values, keep_mask, bias=bias, scale=scale)
            yield (out,)


def result_of(graph, x):
    """What a graph of ONNX makes of an array; the array itself if there is none."""
    if graph is None:
        return x
    from onnx import defs
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(graph, opsets={"": defs.onnx_opset_version()})
    [y] = evaluator.run(None, {graph.input[0].name: x})
    return y


def rotary_embedding(
    ops, x, cos, sin, positions=None, *, interleaved=0, num_heads=None, rotary_embedding_dim=0
):
    """Each pair by itself: its cosine and sine may be any numbers, here those of position · unit,
    times a length.
    """
    unit = 1e-9
    heads = x if x.ndim == 4 else ops.split_heads(x, num_heads)
    if positions is not None:
        cos = cos[positions]
        sin = sin[positions]
    M = cos.shape[-1]
    lengths = np.hypot(cos, sin)[:, None, :, :, None]
    angles = np.arctan2(sin, cos, dtype="float64") % (2 * np.pi)
    options = {
        "base": 1.0,
        "scaling": 1 / unit,
        "pairs": "interleaved" if interleaved else "halves",
    }
    y = heads.copy()
    for i in range(M):
        pair = [2 * i, 2 * i + 1] if interleaved else [i, i + M]
        at = np.rint(angles[:, None, :, i] / unit).astype(int)
        turned = ops.rotary(heads[..., : 2 * M], at, **options)
        y[..., pair] = turned[..., pair] * lengths[..., i, :]
    yield (y if x.ndim == 4 else ops.merge_heads(y),)


def layer_normalization(ops, x, gain, bias, *, axis=-1, epsilon=1e-5):
    y, *moments = ops.layer_norm(rows_from(x, axis), gain.ravel(), bias.ravel(), epsilon)
    shape = [n if i < axis % x.ndim else 1 for i, n in enumerate(x.shape)]
    yield y.reshape(x.shape), *(moment.reshape(shape) for moment in moments)


def rms_normalization(ops, x, gain, *, axis=-1, epsilon=1e-5):
    yield (ops.rms_norm(rows_from(x, axis), gain.ravel(), epsilon)[0].reshape(x.shape),)


def rows_from(x, axis):
    """The array with one axis in the place of all from this one on."""
    return x.reshape(*x.shape[:axis], -1)


def softmax_cross_entropy_loss(
    ops, x, targets, weight=None, *, reduction="mean", ignore_index=None
):
    logits = np.moveaxis(x, 1, -1)
    if weight is None and reduction != "none":
        n_tokens = 1 if reduction == "sum" else None
        loss, _ = ops.cross_entropy(logits, targets, ignore_id=ignore_index, n_tokens=n_tokens)
    else:
        losses = losses_of_tokens(ops, logits, targets, ignore_index)
        loss = reduced(losses, targets, weight, reduction, ignore_index)
    yield loss, ops.log_softmax(x, axis=1)


def negative_log_likelihood_loss(
    ops, x, targets, weight=None, *, reduction="mean", ignore_index=None
):
    """The cross-entropy of probabilities.

    ONNX's add up to anything: they are lowered, and one class has the rest.
    """
    log_p = np.moveaxis(x, 1, -1)
    shift = float(log_p.max() + np.log(2 * log_p.shape[-1]))
    lowered = log_p - shift
    rest = np.log(1 - np.exp(lowered).sum(axis=-1, keepdims=True))
    logits = np.concatenate([lowered, rest], axis=-1)
    losses = losses_of_tokens(ops, logits, targets, ignore_index) - shift
    yield (reduced(losses, targets, weight, reduction, ignore_index),)


def losses_of_tokens(ops, logits, targets, ignore_id):
    """The cross-entropy of each token by itself."""
    losses = np.zeros(targets.shape, logits.dtype)
    for index in np.ndindex(targets.shape):
        target = targets[index].reshape(1)
        loss, _ = ops.cross_entropy(logits[index][None], target, ignore_id=ignore_id, n_tokens=1)
        losses[index] = loss
    return losses


def reduced(losses, targets, weight, reduction, ignore_id):
    """Losses times the weights of their classes, and their sum or mean.

    npformer's cross-entropy has no weights.
    """
    weights = (targets != ignore_id).astype(losses.dtype)
    if weight is not None:
        weights *= weight[np.where(weights, targets, 0)]
    losses = losses * weights
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.sum() / weights.sum()


def of_one_array(name):
    """An operator that is the operation of this name."""

    def operator(ops, x, **options):
        yield (getattr(ops, name)(x, **options),)

    return operator


def gelu(ops, x, *, approximate="none"):
    yield (ops.gelu(x) if approximate == "tanh" else ops.gelu_erf(x),)


def swish(ops, x, *, alpha=1.0):
    yield (ops.silu(alpha * x) / alpha,)


def swiglu(ops, a, b, *, alpha=1.0):
    yield (ops.swiglu(np.concatenate([alpha * a, b], axis=-1)) / alpha,)


def dropout(ops, x, rate=0.5, training=False, *, ratio=None, seed=None):
    if training and rate:
        raise NotExpressed("entries that another generator draws")
    yield ops.dropout(x, 0.0, None), ops.dropout(np.ones_like(x), 0.0, None) == 1


def gemm(ops, a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    x = a.T if transA else a
    weight = alpha * (b.T if transB else b)
    if c is None:
        yield (ops.linear(x, weight, None),)
    elif c.ndim == 2 and len(c) > 1:  # a bias for each row is a residual
        residual = beta * np.broadcast_to(c, (len(x), weight.shape[1]))
        yield (ops.linear_dropout_residual(x, weight, None, residual),)
    else:
        bias = beta * np.broadcast_to(c.reshape(-1), weight.shape[1:])
        yield (ops.linear(x, weight, bias),)


def matmul(ops, a, b):
    rows = a[None] if a.ndim == 1 else a
    columns = b[:, None] if b.ndim == 1 else b
    lead = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    rows = np.broadcast_to(rows, lead + rows.shape[-2:])
    columns = np.broadcast_to(columns, lead + columns.shape[-2:])
    out = ops.product(rows, columns)
    yield (out.reshape(lead + a.shape[-2:-1] + b.shape[1:][-1:]),)


def gather(ops, data, ids, *, axis=0):
    table = np.moveaxis(data, axis, 0)
    ids = ids % len(table)  # ONNX counts negative ids from the end
    y = ops.embedding(ids, table.reshape(len(table), -1)).reshape(ids.shape + table.shape[1:])
    yield (np.moveaxis(y, range(ids.ndim), range(axis, axis + ids.ndim)),)


def causal_conv_with_state(ops, x, weight, bias=None, past=None, *, activation="none"):
    """Each channel by itself: the matrices of the taps are diagonal."""
    T = x.shape[2]
    before = weight.shape[2] - 1
    seen = x if past is None else np.concatenate([past, x], axis=-1)
    taps = np.stack([np.diag(tap) for tap in weight[:, 0].T])
    y = ops.conv1d(seen.swapaxes(1, 2), taps, bias, causal=True)[:, -T:]
    if activation != "none":
        y = ops.silu(y)
    padded = np.pad(seen, ((0, 0), (0, 0), (before, 0)))
    yield y.swapaxes(1, 2), padded[..., padded.shape[-1] - before :]


def gru(ops, x, w, r, b=None, *, hidden_size, direction="forward", layout=0):
    """ONNX resets the state before the product with U_n, npformer after it,
    which is the same where r is one number.
    """

    def run(x, reverse, *of_gates):
        resets = [np.split(part, 3)[1] for part in of_gates]
        if x.shape[1] > 1 and any((part != part[0]).any() for part in resets):
            raise NotExpressed("the reset gate before the product with U_n")
        weight, recurrent, *biases = (in_order(part, 1, 0, 2) for part in of_gates)
        x_gates = ops.linear(x, weight, sum(biases))
        none = np.zeros(hidden_size, x.dtype)
        states, *_ = ops.gru(x_gates, of_no_words(x, hidden_size), recurrent, none, reverse=reverse)
        return (states,)

    yield both_directions(run, x, w, r, b, direction, layout)


def lstm(
    ops,
    x,
    w,
    r,
    b=None,
    lengths=None,
    h0=None,
    c0=None,
    p=None,
    *,
    hidden_size,
    direction="forward",
    layout=0,
):
    if p is not None:
        raise NotExpressed("gates that see the cell (peepholes)")

    def run(x, reverse, *of_gates):
        weight, recurrent, *biases = (in_order(part, 0, 2, 3, 1) for part in of_gates)
        x_gates = ops.linear(x, weight, sum(biases))
        first = of_no_words(x, hidden_size)
        states, cells, *_ = ops.lstm(x_gates, first, first, recurrent, reverse=reverse)
        return states, cells

    yield both_directions(run, x, w, r, b, direction, layout)


def of_no_words(x, hidden_size):
    """The state of each row before its first word."""
    return np.zeros((len(x), hidden_size), x.dtype)


def in_order(x, *order):
    """The gates of one direction, (n D, ...), in this order and transposed."""
    gates = np.split(x, len(order))
    return np.concatenate([gates[i] for i in order]).T


DIRECTIONS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}


def both_directions(run, x, w, r, b, direction, layout):
    """All states, then the last state, and the last cell if there are cells, of each direction."""
    if b is None:
        b = np.zeros((len(w), 2 * w.shape[1]), x.dtype)
    if not layout:
        x = x.swapaxes(0, 1)
    every = []
    last = []
    for d, reverse in enumerate(DIRECTIONS[direction]):
        results = run(x, reverse, w[d], r[d], *np.split(b[d], 2))
        every.append(results[0])
        last.append([states[:, 0 if reverse else -1] for states in results])
    states = np.stack(every, axis=2)
    ends = [np.stack(end, axis=1) for end in zip(*last, strict=True)]
    if layout:
        return states, *ends
    return states.transpose(1, 2, 0, 3), *(end.swapaxes(0, 1) for end in ends)


def adam(ops, lr, t, *tensors, alpha=0.9, beta=0.999, epsilon=1e-6, norm_coefficient=0.0):
    """ONNX adds epsilon to √v, npformer to √v̂.

    At t = 0, it corrects nothing, as npformer after many steps.
    """
    step = int(t) or 10**6
    options = {"lr": float(lr), "step": step, "beta1": alpha, "beta2": beta}
    options["eps"] = epsilon / (1 - beta**step) ** 0.5
    yield updated(tensors, 4, norm_coefficient, partial(ops.adam_update, **options))


def momentum(ops, lr, t, *tensors, alpha, beta, mode, norm_coefficient):
    options = {"lr": float(lr), "momentum": alpha, "nesterov": mode == "nesterov"}
    options["grad_scale"] = beta if t > 0 else 1.0
    yield updated(tensors, 3, norm_coefficient, partial(ops.sgd_update, **options))


def updated(tensors, n_kinds, norm_coefficient, update):
    """All new parameters, then the new moments.

    ``tensors`` are all parameters, all gradients, all first moments …
    """
    n = len(tensors) // n_kinds
    written = [x.copy() for x in tensors]
    for i in range(n):
        param, grad, *moments = written[i::n]
        update(param, grad + norm_coefficient * param, *moments)
    return written[:n] + written[2 * n :]


OPERATORS = {
    "Adam": adam,
    "Attention": attention,
    "CausalConvWithState": causal_conv_with_state,
    "Dropout": dropout,
    "FlexAttention": flex_attention,
    "GRU": gru,
    "Gather": gather,
    "Gelu": gelu,
    "Gemm": gemm,
    "LSTM": lstm,
    "LayerNormalization": layer_normalization,
    "LogSoftmax": of_one_array("log_softmax"),
    "MatMul": matmul,
    "Momentum": momentum,
    "NegativeLogLikelihoodLoss": negative_log_likelihood_loss,
    "RMSNormalization": rms_normalization,
    "Relu": of_one_array("relu"),
    "RotaryEmbedding": rotary_embedding,
    "Sigmoid": of_one_array("sigmoid"),
    "Softmax": of_one_array("softmax"),
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy_loss,
    "SwiGLU": swiglu,
    "Swish": swish,
    "Tanh": of_one_array("tanh"),
}
