"""The operations again, as slow and simple as possible.

Loops over scalars, without any code of npformer.

NumPy arrays only hold the numbers here; all arithmetic is on Python floats.
"""

import math

import numpy as np


def assert_close(actual, expected, tolerance=1e-13):
    """Equal shapes, and no entry off by more than ``tolerance`` times the largest one (or 1).

    NaN is never close.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale, equal_nan=False)


def along_last_axis(f, x, *more):
    """``f`` of each row; ``more`` are arrays with the same leading axes, or scalars there."""
    rows = [
        np.asarray(f(x[index], *(other[index] for other in more)))
        for index in np.ndindex(x.shape[:-1])
    ]
    return np.array(rows).reshape(*x.shape[:-1], *rows[0].shape)


def softmax(x):
    return along_last_axis(softmax_row, x)


def softmax_row(row):
    peak = max(row)
    if peak == -math.inf:
        return [0.0 for _ in row]
    exponentials = [math.exp(entry - peak) for entry in row]
    total = math.fsum(exponentials)
    return [e / total for e in exponentials]


def log_sum_exp(row):
    peak = max(row)
    if peak == -math.inf:
        return -math.inf
    return peak + math.log(math.fsum(math.exp(entry - peak) for entry in row))


def log_softmax(x):
    return along_last_axis(lambda row: [entry - log_sum_exp(row) for entry in row], x)


def layer_norm(x, gain, bias, eps=1e-5):
    def normalise(row):
        mean = math.fsum(row) / len(row)
        variance = math.fsum((entry - mean) ** 2 for entry in row) / len(row)
        return [
            (entry - mean) / math.sqrt(variance + eps) * g + b
            for entry, g, b in zip(row, gain, bias, strict=True)
        ]

    return along_last_axis(normalise, x)


def linear(x, weight, bias=None):
    D_in, D_out = weight.shape

    def one_row(row):
        sums = [math.fsum(row[i] * weight[i, j] for i in range(D_in)) for j in range(D_out)]
        return sums if bias is None else [total + b for total, b in zip(sums, bias, strict=True)]

    return along_last_axis(one_row, x)


def conv1d(x, weight, bias, dilation, causal):
    """Each tap w of each output looks up the position it sees, or nothing beyond the ends."""
    (B, T, D_in), (W, _, D_out) = x.shape, weight.shape
    out = np.zeros((B, T, D_out))
    for b, t, j in np.ndindex(out.shape):
        total = 0.0 if bias is None else float(bias[j])
        for w in range(W):
            s = t - dilation * (W - 1 - w) if causal else t + dilation * (w - W // 2)
            if 0 <= s < T:
                total += math.fsum(x[b, s, i] * weight[w, i, j] for i in range(D_in))
        out[b, t, j] = total
    return out


def attention(
    q,
    k,
    v,
    keep_mask=None,
    causal=False,
    scale=None,
    dropout_keep=None,
    rate=0.0,
    bias=None,
    softcap=None,
):
    """``(out, weights, logsumexp)``; ``dropout_keep`` (..., T, S) says which weights survive."""
    *batch, T, K = q.shape
    S, Kv = v.shape[-2:]
    scale = 1 / math.sqrt(K) if scale is None else scale
    keep_mask = np.broadcast_to(True if keep_mask is None else keep_mask, (*batch, T, S))
    bias = np.broadcast_to(0.0 if bias is None else bias, (*batch, T, S))
    out = np.zeros((*batch, T, Kv))
    weights = np.zeros((*batch, T, S))
    logsumexp = np.zeros((*batch, T))
    for index in np.ndindex(*batch, T):
        head, t = index[:-1], index[-1]
        scores = [-math.inf] * S
        for s in range(S):
            if keep_mask[(*index, s)] and not (causal and s > t + S - T):
                score = scale * math.fsum(q[index][i] * k[(*head, s, i)] for i in range(K))
                score = score if softcap is None else softcap * math.tanh(score / softcap)
                scores[s] = score + bias[(*index, s)]
        weights[index] = softmax_row(scores)
        logsumexp[index] = log_sum_exp(scores)
        used = list(weights[index])
        if dropout_keep is not None:
            used = [
                w / (1 - rate) if kept else 0.0
                for w, kept in zip(used, dropout_keep[index], strict=True)
            ]
        out[index] = [math.fsum(used[s] * v[(*head, s, j)] for s in range(S)) for j in range(Kv)]
    return out, weights, logsumexp


def dot_score(q, k):
    return each_pair(
        lambda query, key: math.fsum(a * b for a, b in zip(query, key, strict=True)), q, k
    )


def scaled_dot_score(q, k):
    return dot_score(q, k) / math.sqrt(q.shape[-1])


def cosine_score(q, k):
    def cosine(query, key):
        lengths = math.hypot(*query) * math.hypot(*key)
        return (
            math.fsum(a * b for a, b in zip(query, key, strict=True)) / lengths if lengths else 0.0
        )

    return each_pair(cosine, q, k)


def bilinear_score(q, k, weight):
    def form(query, key):
        return math.fsum(query[i] * weight[i, j] * key[j] for i, j in np.ndindex(weight.shape))

    return each_pair(form, q, k)


def additive_score(q, k, w_q, w_k, w_score):
    def hidden_layer(query, key):
        total = 0.0
        for a in range(len(w_score)):
            from_query = math.fsum(query[i] * w_q[i, a] for i in range(len(query)))
            from_key = math.fsum(key[i] * w_k[i, a] for i in range(len(key)))
            total += w_score[a] * math.tanh(from_query + from_key)
        return total

    return each_pair(hidden_layer, q, k)


def each_pair(f, q, k):
    """``f(query, key)`` for each query and each key of the same leading index, (..., T, S)."""
    out = np.zeros((*q.shape[:-1], k.shape[-2]))
    for index in np.ndindex(out.shape):
        out[index] = f(q[index[:-1]], k[(*index[:-2], index[-1])])
    return out


def attend(scores, v, keep_mask=None, causal=False):
    """``(out, weights)`` of given scores."""
    T, S = scores.shape[-2:]
    keep_mask = np.broadcast_to(True if keep_mask is None else keep_mask, scores.shape)
    out, weights = np.zeros((*scores.shape[:-1], v.shape[-1])), np.zeros(scores.shape)
    for index in np.ndindex(scores.shape[:-1]):
        sees = [keep_mask[(*index, s)] and not (causal and s > index[-1] + S - T) for s in range(S)]
        weights[index] = softmax_row(
            [scores[(*index, s)] if sees[s] else -math.inf for s in range(S)]
        )
        for j in range(v.shape[-1]):
            out[(*index, j)] = math.fsum(
                weights[(*index, s)] * v[(*index[:-1], s, j)] for s in range(S)
            )
    return out, weights


def soft_lookup(similarities, values):
    """The soft lookup of one query, where the values are numbers."""
    total = math.fsum(similarities)
    return (
        math.fsum(a * value for a, value in zip(similarities, values, strict=True)) / total
        if total
        else 0.0
    )


def cross_entropy(logits, targets, ignore_id=None, label_smoothing=0.0):
    """``(loss, dlogits)``, the mean over the targets that are not ``ignore_id``."""
    V = logits.shape[-1]
    counted = [index for index in np.ndindex(targets.shape) if targets[index] != ignore_id]
    loss, dlogits = 0.0, np.zeros(logits.shape)
    for index in counted:
        wanted = [label_smoothing / V] * V
        wanted[targets[index]] += 1 - label_smoothing
        row = list(logits[index])
        normaliser = log_sum_exp(row)
        for i in range(V):
            loss -= wanted[i] * (row[i] - normaliser) / len(counted)
            dlogits[(*index, i)] = (math.exp(row[i] - normaliser) - wanted[i]) / len(counted)
    return loss, dlogits


def paired_cross_entropy(logits, targets, consistency, ignore_id=None, label_smoothing=0.0):
    """The loss of both predictions, and half of both divergences."""
    losses = [cross_entropy(side, targets, ignore_id, label_smoothing)[0] for side in logits]
    divergences = []
    for index in np.ndindex(targets.shape):
        if targets[index] != ignore_id:
            log_p, log_other = (
                [x - log_sum_exp(list(row)) for x in row]
                for row in (side[index] for side in logits)
            )
            divergences += [
                math.fsum(math.exp(a) * (a - b) for a, b in zip(log_p, log_other, strict=True))
            ]
            divergences += [
                math.fsum(math.exp(b) * (b - a) for a, b in zip(log_p, log_other, strict=True))
            ]
    return math.fsum(losses) / 2 + consistency / 2 * math.fsum(divergences) / len(divergences)


def regression_loss(loss_of, slope_of, x, targets, keep_mask=True):
    """``(loss, dx)``, the mean of a function of x - target over the entries that count."""
    keep_mask = np.broadcast_to(keep_mask, x.shape)
    counted = [index for index in np.ndindex(x.shape) if keep_mask[index]]
    dx = np.zeros(x.shape)
    for index in counted:
        dx[index] = slope_of(float(x[index]) - float(targets[index])) / len(counted)
    return math.fsum(loss_of(float(x[index]) - float(targets[index])) for index in counted) / len(
        counted
    ), dx


def mse_loss(x, targets, keep_mask=True):
    return regression_loss(lambda r: r**2, lambda r: 2 * r, x, targets, keep_mask)


def huber_loss(x, targets, keep_mask=True, delta=1.0):
    def loss_of(r):
        return r**2 / 2 if abs(r) <= delta else delta * (abs(r) - delta / 2)

    return regression_loss(loss_of, lambda r: min(max(r, -delta), delta), x, targets, keep_mask)


def embedding(ids, table):
    out = np.zeros((*ids.shape, table.shape[1]))
    for index in np.ndindex(out.shape):
        out[index] = table[int(ids[index[:-1]]), index[-1]]
    return out


def sinusoidal_encoding(length, d_model, layout):
    """Each wavelength has a sine and a cosine; with an odd width the last cosine is missing."""
    n_sines = math.ceil(d_model / 2)
    out = np.zeros((length, d_model))
    for position in range(length):
        for column in range(d_model):
            if layout == "interleaved":
                i, is_sine = column // 2, column % 2 == 0
            else:
                i, is_sine = column % n_sines, column < n_sines
            angle = position / 10000 ** (2 * i / d_model)
            out[position, column] = math.sin(angle) if is_sine else math.cos(angle)
    return out


def split_heads(x, n_heads):
    B, T, D = x.shape
    K = D // n_heads
    out = np.zeros((B, n_heads, T, K))
    for b, h, t, i in np.ndindex(out.shape):
        out[b, h, t, i] = x[b, t, h * K + i]
    return out


def merge_heads(x):
    B, H, T, K = x.shape
    out = np.zeros((B, T, H * K))
    for b, h, t, i in np.ndindex(x.shape):
        out[b, t, h * K + i] = x[b, h, t, i]
    return out


def product(a, b):
    """The matrix product of two matrices in which 0 times anything is 0,
    and NaN or inf times the rest NaN.
    """
    out = np.zeros((a.shape[0], b.shape[1]))
    for n, p in np.ndindex(out.shape):
        for m in range(a.shape[1]):
            x, y = float(a[n, m]), float(b[m, p])
            if x != 0 and y != 0:
                out[n, p] += x * y if math.isfinite(x) and math.isfinite(y) else math.nan
    return out


def elementwise(f, x):
    return np.array([f(float(entry)) for entry in x.flat]).reshape(x.shape)


def relu(x):
    return max(x, 0.0)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x):
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def random_bits(index, key):
    """32 bits from an index and a key, in Python integers of unlimited size,
    reduced to 32 bits explicitly.
    """
    word = splitmix64(key)
    low, high = index & 0xFFFFFFFF, index >> 32
    return lowbias32(lowbias32(low ^ (word & 0xFFFFFFFF)) + (high ^ (word >> 32)) & 0xFFFFFFFF)


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def lowbias32(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32
    x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
    return x ^ (x >> 16)


def dropout_keep(shape, rate, key):
    """True where an element survives; elements are counted in C order."""
    kept = [random_bits(i, key) >= rate * 2**32 for i in range(math.prod(shape))]
    return np.array(kept).reshape(shape)


def dropout(x, rate, key):
    keep = dropout_keep(x.shape, rate, key)
    out = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        out[index] = float(x[index]) / (1 - rate) if keep[index] else 0.0
    return out


def gru(x_gates, h0, weight, bias, keep_mask, order):
    """The states, computed step by step and number by number.

    ``order`` is the order of the steps.
    """
    B, T, D = x_gates.shape[0], x_gates.shape[1], h0.shape[1]
    states = np.zeros((B, T, D))
    for row in range(B):
        h = [float(x) for x in h0[row]]
        for t in order:
            x = x_gates[row, t]
            said = [math.fsum(h[i] * weight[i, j] for i in range(D)) for j in range(3 * D)]
            new = []
            for j in range(D):
                r, z = sigmoid(x[j] + said[j]), sigmoid(x[D + j] + said[D + j])
                n = math.tanh(x[2 * D + j] + r * (said[2 * D + j] + bias[j]))
                new.append((1 - z) * n + z * h[j])
            h = new if keep_mask[row, t] else h
            states[row, t] = h
    return states


def lstm(x_gates, h0, c0, weight, keep_mask, order):
    """(states, cells), as ``gru``."""
    B, T, D = x_gates.shape[0], x_gates.shape[1], h0.shape[1]
    states, cells = np.zeros((B, T, D)), np.zeros((B, T, D))
    for row in range(B):
        h, c = [float(x) for x in h0[row]], [float(x) for x in c0[row]]
        for t in order:
            a = [
                x_gates[row, t, j] + math.fsum(h[i] * weight[i, j] for i in range(D))
                for j in range(4 * D)
            ]
            if keep_mask[row, t]:
                c = [
                    sigmoid(a[D + j]) * c[j] + sigmoid(a[j]) * math.tanh(a[2 * D + j])
                    for j in range(D)
                ]
                h = [sigmoid(a[3 * D + j]) * math.tanh(c[j]) for j in range(D)]
            states[row, t], cells[row, t] = h, c
    return states, cells
