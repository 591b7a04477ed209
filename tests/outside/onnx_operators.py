"""Operators of ONNX as calls of npformer's operations.

Each function takes a backend, the inputs of a node (None where it leaves one out) and its
attributes, under ONNX's names, and yields the outputs of the node, once for each way in which
npformer computes them: the first way has all of them, the others may have None. What the operations
cannot express raises ``NotExpressed``.
"""

from functools import reduce

import numpy as np

from npformer.operations.settings import AttentionSettings
from npformer.reference import causal_mask


class NotExpressed(Exception):
    """Why a node cannot be computed with npformer's operations."""


def attention(
    ops,
    q,
    k,
    v,
    mask=None,
    past_key=None,
    past_value=None,
    n_keys=None,
    *,
    is_causal=0,
    left_window_size=-1,
    right_window_size=-1,
    scale=None,
    softcap=0.0,
    q_num_heads=None,
    kv_num_heads=None,
    qk_matmul_output_mode=0,
    softmax_precision=None,  # npformer computes it in float32, or in float64 if that is given
):
    side_by_side = q.ndim == 3
    if side_by_side:
        q, k, v = (
            ops.split_heads(x, n)
            for x, n in [(q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads)]
        )
    n_past = 0 if past_key is None else past_key.shape[2]
    if n_past:
        k = np.concatenate([past_key, k], axis=2)
        v = np.concatenate([past_value, v], axis=2)
    (B, H, T, K), (G, S) = q.shape, k.shape[1:3]
    scale = K**-0.5 if scale is None else scale
    keep_mask, bias, causal = masks(
        ops, T, S, mask, n_past, n_keys, is_causal, left_window_size, right_window_size
    )
    options = {"causal": causal, "scale": scale, "softcap": softcap or None}
    as_given = ops.merge_heads if side_by_side else lambda heads: heads
    keys, values = np.repeat(k, H // G, axis=1), np.repeat(v, H // G, axis=1)

    # A query that may attend to no key has the output 0, in ONNX and in npformer, and a mask may be
    # -inf in the bias.
    scores = ops.dot_score(q, keys) * q.dtype.type(scale)
    capped = softcap * ops.tanh(scores / softcap) if softcap else scores
    biased = capped if bias is None else capped + bias
    kept = causal_mask(T, S) if causal else True
    masked = np.where(
        kept if keep_mask is None else kept & keep_mask, biased, q.dtype.type(-np.inf)
    )
    weights = ops.softmax(masked)
    yield (
        as_given(ops.product(weights, values)),
        k,
        v,
        [scores, capped, masked, weights][qk_matmul_output_mode],
    )

    out, weights = ops.attention(q, keys, values, keep_mask, bias=bias, **options)
    yield as_given(out), None, None, weights if qk_matmul_output_mode == 3 else None
    out, logsumexp = ops.flash_attention(q, keys, values, keep_mask, bias=bias, **options)
    yield as_given(out), None, None, None

    if v.shape[-1] != K:
        return
    settings = AttentionSettings(H, n_kv_heads=G, **options)
    queries = ops.merge_heads(q)
    kv = np.concatenate([ops.merge_heads(k), ops.merge_heads(v)], axis=-1)
    packed = [ops.cross_attention(queries, kv, settings, keep_mask, bias=bias)[0]]
    if T == S:
        qkv = np.concatenate([queries, kv], axis=-1)
        packed.append(ops.self_attention(qkv, settings, keep_mask, bias=bias)[0])
    if T == 1:
        kept = np.broadcast_to(True if keep_mask is None else keep_mask, (B, 1, 1, S))
        entries = kv.reshape(B * S, -1), np.arange(B * S).reshape(B, S)
        packed.append(ops.cached_attention(queries[:, 0], *entries, settings, kept, bias)[:, None])
    for out in packed:
        yield out if side_by_side else ops.split_heads(out, H), None, None, None


def masks(ops, T, S, mask, n_past, n_keys, is_causal, left, right):
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
    if left >= 0:
        keep.append(query - key <= left)
    if right >= 0:
        keep.append(key - query <= right)
    if n_keys is not None:
        keep.append(key < n_keys[:, None, None, None])
    if mask is not None:
        hidden = False if mask.dtype == bool else -np.inf
        mask = np.pad(
            mask, [(0, 0)] * (mask.ndim - 1) + [(0, S - mask.shape[-1])], constant_values=hidden
        )
        if mask.dtype == bool:
            keep.append(mask)
        elif np.isin(mask, [0, -np.inf]).all():
            keep.append(ops.from_additive(mask))
        else:
            bias = mask
    return reduce(np.logical_and, keep) if keep else None, bias, causal


def flex_attention(ops, q, k, v, *, scale=None, score_mod=None, prob_mod=None):
    """The functions of the scores and of the weights are graphs that the node brings along."""
    if score_mod is None and prob_mod is None:
        yield from attention(ops, q, k, v, scale=scale)
        return
    H, K, G = q.shape[1], q.shape[3], k.shape[1]
    scale = K**-0.5 if scale is None else scale
    keys, values = np.repeat(k, H // G, axis=1), np.repeat(v, H // G, axis=1)
    scores = ops.dot_score(q, keys) * q.dtype.type(scale)
    weights = ops.softmax(result_of(ops, score_mod, scores))
    yield (ops.product(result_of(ops, prob_mod, weights), values),)

    bias = result_of(ops, score_mod, np.zeros_like(scores))
    is_bias = (result_of(ops, score_mod, np.ones_like(scores)) == bias + 1).all()
    # then attention itself computes it; where a key is hidden, the bias is -inf
    if is_bias and prob_mod is None:
        keep_mask = ops.from_additive(np.where(np.isneginf(bias), bias, 0))
        bias = np.where(keep_mask, bias, 0)
        for operation in (ops.attention, ops.flash_attention):
            yield (operation(q, keys, values, keep_mask, bias=bias, scale=scale)[0],)


def result_of(ops, graph, x):
    """What a graph of ONNX makes of an array, node by node; the array itself if there is none."""
    if graph is None:
        return x
    from onnx import numpy_helper

    functions = {
        "Add": np.add,
        "Cast": lambda y: y.astype(x.dtype),
        "Div": np.divide,
        "Gather": lambda y, i: y[i],
        "GreaterOrEqual": np.greater_equal,
        "Mul": np.multiply,
        "Range": np.arange,
        "Reshape": lambda y, shape: y.reshape(tuple(shape)),
        "Shape": lambda y: np.array(y.shape),
        "Sub": np.subtract,
        "Tanh": ops.tanh,
        "Where": np.where,
    }
    arrays = {constant.name: numpy_helper.to_array(constant) for constant in graph.initializer}
    arrays[graph.input[0].name] = x
    for node in graph.node:
        if node.op_type not in functions:
            raise NotExpressed(f"a graph with {node.op_type}")
        arrays[node.output[0]] = functions[node.op_type](*(arrays[name] for name in node.input))
    return arrays[graph.output[0].name]


def rotary_embedding(
    ops,
    x,
    cos,
    sin,
    positions=None,
    *,
    interleaved=0,
    num_heads=None,
    rotary_embedding_dim=0,
    unit=1e-9,
):
    """Each pair by itself: its cosine and sine may be any numbers, here those of position · unit,
    times a length.
    """
    heads = x if x.ndim == 4 else ops.split_heads(x, num_heads)
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    M = cos.shape[-1]
    pairs = "interleaved" if interleaved else "halves"
    lengths = np.hypot(cos, sin)
    angles = np.arctan2(sin, cos, dtype="float64") % (2 * np.pi)
    y = heads.copy()
    for i in range(M):
        pair = [2 * i, 2 * i + 1] if interleaved else [i, i + M]
        at = np.rint(angles[:, None, :, i] / unit).astype(int)
        turned = ops.rotary(heads[..., : 2 * M], at, base=1.0, scaling=1 / unit, pairs=pairs)
        y[..., pair] = turned[..., pair] * lengths[:, None, :, i, None]
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
        loss = ops.cross_entropy(logits, targets, ignore_id=ignore_index, n_tokens=n_tokens)[0]
    else:
        loss = reduced(
            losses_of_tokens(ops, logits, targets, ignore_index),
            targets,
            weight,
            reduction,
            ignore_index,
        )
    yield loss, ops.log_softmax(x, axis=1)


def negative_log_likelihood_loss(
    ops, x, targets, weight=None, *, reduction="mean", ignore_index=None
):
    """The cross-entropy of probabilities.

    ONNX's add up to anything: they are lowered, and one class has the rest.
    """
    log_p = np.moveaxis(x, 1, -1)
    shift = float(log_p.max() + np.log(2 * log_p.shape[-1]))
    rest = np.log(1 - np.exp(log_p - shift).sum(axis=-1, keepdims=True))
    logits = np.concatenate([log_p - shift, rest], axis=-1)
    losses = losses_of_tokens(ops, logits, targets, ignore_index) - shift
    yield (reduced(losses, targets, weight, reduction, ignore_index),)


def losses_of_tokens(ops, logits, targets, ignore_id):
    """The cross-entropy of each token by itself."""
    tokens = zip(logits.reshape(-1, 1, logits.shape[-1]), targets.reshape(-1, 1), strict=True)
    losses = [
        ops.cross_entropy(row, target, ignore_id=ignore_id, n_tokens=1)[0] for row, target in tokens
    ]
    return np.array(losses).reshape(targets.shape)


def reduced(losses, targets, weight, reduction, ignore_id):
    """Losses times the weights of their classes, and their sum or mean.

    npformer's cross-entropy has no weights.
    """
    counted = targets != ignore_id
    weights = np.where(
        counted, 1 if weight is None else weight[np.where(counted, targets, 0)], 0
    ).astype(losses.dtype)
    losses = losses * weights
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / weights.sum()}[reduction]


def softmax(ops, x, *, axis=-1):
    yield (ops.softmax(x, axis),)


def log_softmax(ops, x, *, axis=-1):
    yield (ops.log_softmax(x, axis),)


def relu(ops, x):
    yield (ops.relu(x),)


def sigmoid(ops, x):
    yield (ops.sigmoid(x),)


def tanh(ops, x):
    yield (ops.tanh(x),)


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
    x, weight = a.T if transA else a, alpha * (b.T if transB else b)
    if c is not None and c.ndim == 2 and len(c) > 1:  # a bias for each row is a residual
        residual = beta * np.broadcast_to(c, (len(x), weight.shape[1]))
        yield (ops.linear_dropout_residual(x, weight, None, residual),)
        return
    bias = None if c is None else beta * np.broadcast_to(c.reshape(-1), weight.shape[1:])
    yield (ops.linear(x, weight, bias),)


def matmul(ops, a, b):
    rows, columns = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    lead = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    out = ops.product(*(np.broadcast_to(x, lead + x.shape[-2:]) for x in (rows, columns)))
    yield (out.reshape(out.shape[:-2] + a.shape[-2:-1] + b.shape[1:][-1:]),)


def gather(ops, data, ids, *, axis=0):
    table = np.moveaxis(data, axis, 0)
    ids = ids % len(table)  # ONNX counts negative ids from the end
    y = ops.embedding(ids, table.reshape(len(table), -1)).reshape(ids.shape + table.shape[1:])
    yield (np.moveaxis(y, range(ids.ndim), range(axis, axis + ids.ndim)),)


def causal_conv_with_state(ops, x, weight, bias=None, past=None, *, activation="none"):
    """Each channel by itself: the matrices of the taps are diagonal."""
    (B, C, T), (_, _, W) = x.shape, weight.shape
    seen = x if past is None else np.concatenate([past, x], axis=-1)
    y = ops.conv1d(
        seen.swapaxes(1, 2), np.stack([np.diag(tap) for tap in weight[:, 0].T]), bias, causal=True
    )[:, -T:]
    y = y if activation == "none" else ops.silu(y)
    padded = np.concatenate([np.zeros((B, C, W - 1), x.dtype), seen], axis=-1)
    yield y.swapaxes(1, 2), padded[..., padded.shape[-1] - (W - 1) :]


def gru(ops, x, w, r, b=None, *, hidden_size, direction="forward", layout=0):
    """ONNX resets the state before the product with U_n, npformer after it,
    which is the same where r is one number.
    """
    b = np.zeros((len(w), 6 * hidden_size), x.dtype) if b is None else b

    def run(x, d, reverse):
        of_reset = [np.split(part, 3)[1] for part in (w[d], r[d], *np.split(b[d], 2))]
        if x.shape[1] > 1 and any((part != part[0]).any() for part in of_reset):
            raise NotExpressed("the reset gate before the product with U_n")
        weight, recurrent, *biases = (
            in_order(part, 1, 0, 2) for part in (w[d], r[d], *np.split(b[d], 2))
        )
        h0 = np.zeros((len(x), hidden_size), x.dtype)
        no_bias = np.zeros(hidden_size, x.dtype)
        return ops.gru(ops.linear(x, weight, sum(biases)), h0, recurrent, no_bias, reverse=reverse)[
            :1
        ]

    yield both_directions(run, x, direction, layout)


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
    b = np.zeros((len(w), 8 * hidden_size), x.dtype) if b is None else b

    def run(x, d, reverse):
        weight, recurrent, *biases = (
            in_order(part, 0, 2, 3, 1) for part in (w[d], r[d], *np.split(b[d], 2))
        )
        first = np.zeros((len(x), hidden_size), x.dtype)
        return ops.lstm(
            ops.linear(x, weight, sum(biases)), first, first, recurrent, reverse=reverse
        )[:2]

    yield both_directions(run, x, direction, layout)


def in_order(x, *order):
    """The gates of one direction, (n D, ...), in this order and transposed."""
    gates = np.split(x, len(order))
    return np.concatenate([gates[i] for i in order]).T


def both_directions(run, x, direction, layout):
    """All states, then the last state, and the last cell if there are cells, of each direction."""
    x = x if layout else x.swapaxes(0, 1)
    reverse = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    runs = [run(x, d, backwards) for d, backwards in enumerate(reverse)]
    states = np.stack([run[0] for run in runs], axis=2)
    ends = [
        [x[:, 0 if backwards else -1] for x in run]
        for run, backwards in zip(runs, reverse, strict=True)
    ]
    last = [np.stack(end, axis=1) for end in zip(*ends, strict=True)]
    return (
        (states, *last)
        if layout
        else (states.transpose(1, 2, 0, 3), *(x.swapaxes(0, 1) for x in last))
    )


def adam(ops, lr, t, *tensors, alpha=0.9, beta=0.999, epsilon=1e-6, norm_coefficient=0.0):
    """ONNX adds epsilon to √v, npformer to √v̂.

    At t = 0, it corrects nothing, as npformer after many steps.
    """
    step = int(t) or 10**6
    options = {
        "lr": float(lr),
        "step": step,
        "beta1": alpha,
        "beta2": beta,
        "eps": epsilon / (1 - beta**step) ** 0.5,
    }
    yield updated(tensors, 4, norm_coefficient, lambda *arrays: ops.adam_update(*arrays, **options))


def momentum(ops, lr, t, *tensors, alpha, beta, mode, norm_coefficient):
    options = {
        "lr": float(lr),
        "momentum": alpha,
        "nesterov": mode == "nesterov",
        "grad_scale": beta if t > 0 else 1.0,
    }
    yield updated(tensors, 3, norm_coefficient, lambda *arrays: ops.sgd_update(*arrays, **options))


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
    "LogSoftmax": log_softmax,
    "MatMul": matmul,
    "Momentum": momentum,
    "NegativeLogLikelihoodLoss": negative_log_likelihood_loss,
    "RMSNormalization": rms_normalization,
    "Relu": relu,
    "RotaryEmbedding": rotary_embedding,
    "Sigmoid": sigmoid,
    "Softmax": softmax,
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy_loss,
    "SwiGLU": swiglu,
    "Swish": swish,
    "Tanh": tanh,
}
