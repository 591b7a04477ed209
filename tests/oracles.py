"""The operations again, as slow and simple as possible.

Loops over scalars, without any code of npformer. Each function has the name and the parameters of
the operation that it repeats, and returns its first results.

NumPy arrays only hold the numbers here; all arithmetic is on Python floats.
"""

import math
from dataclasses import replace

import numpy as np


def assert_close(actual, expected, tolerance=1e-13):
    """Equal shapes, and no entry off by more than ``tolerance`` times the largest one (or 1).

    NaN is never close, and infinity only to itself.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    scale = max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=0))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale, equal_nan=False)


def assert_all_close(actual, expected, tolerance=1e-13):
    """As many arrays as expected, each of them close to its own."""
    for x, wanted in zip(actual, expected, strict=True):
        assert_close(x, wanted, tolerance)


def along_last_axis(f, x):
    """``f`` of each row."""
    rows = [np.asarray(f(x[index])) for index in np.ndindex(x.shape[:-1])]
    return np.array(rows).reshape(*x.shape[:-1], *rows[0].shape)


def elementwise(f, x):
    return np.array([f(float(entry)) for entry in x.flat]).reshape(x.shape)


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


# Activations.


def sigmoid_of(x):
    return 1 / (1 + math.exp(-x))


def gelu_of(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def relu(x):
    return elementwise(lambda entry: max(entry, 0.0), x)


def sigmoid(x):
    return elementwise(sigmoid_of, x)


def tanh(x):
    return elementwise(math.tanh, x)


def silu(x):
    return elementwise(lambda entry: entry * sigmoid_of(entry), x)


def gelu(x):
    return elementwise(gelu_of, x)


def gelu_erf(x):
    return elementwise(lambda entry: 0.5 * entry * math.erfc(-entry / math.sqrt(2)), x)


def swiglu(x):
    """The second half of each row, which the first one opens and closes."""
    F = x.shape[-1] // 2
    return silu(x[..., :F]) * x[..., F:]


# Along an axis.


def softmax(x, axis=-1):
    return np.moveaxis(along_last_axis(softmax_row, np.moveaxis(x, axis, -1)), -1, axis)


def log_softmax(x, axis=-1):
    return np.moveaxis(along_last_axis(log_softmax_row, np.moveaxis(x, axis, -1)), -1, axis)


def softmax_row(row):
    peak = max(row)
    if peak == -math.inf:
        return [0.0 for _ in row]
    exponentials = [math.exp(entry - peak) for entry in row]
    total = math.fsum(exponentials)
    return [e / total for e in exponentials]


def log_softmax_row(row):
    normaliser = log_sum_exp(row)
    return [entry - normaliser for entry in row]


def log_sum_exp(row):
    peak = max(row)
    if peak == -math.inf:
        return -math.inf
    return peak + math.log(total_of(row))


def total_of(row):
    """Σ exp(entry - peak), 0 if all entries are -inf."""
    peak = max(row)
    if peak == -math.inf:
        return 0.0
    return math.fsum(math.exp(entry - peak) for entry in row)


def log_softmax_top_k(x, k):
    """Of equal logits the first one comes first."""
    orders = [sorted(range(len(row)), key=lambda i, row=row: -row[i])[:k] for row in x]
    log_p = log_softmax(x)
    values = [[log_p[b, i] for i in order] for b, order in enumerate(orders)]
    return np.array(values), np.array(orders)


def layer_norm(x, gain, bias, eps=1e-5):
    D = x.shape[-1]
    mean = along_last_axis(lambda row: [math.fsum(row) / D], x)
    y, rstd = rms_norm(x - mean, gain, eps)
    return y + bias, mean, rstd


def rms_norm(x, gain, eps=1e-6):
    rstd = along_last_axis(lambda row: [1 / math.sqrt(dot(row, row) / len(row) + eps)], x)
    return x * rstd * gain, rstd


# Linear maps.


def product(a, b):
    """The matrix product in which 0 times anything is 0, and NaN or inf times the rest NaN."""
    out = np.zeros((*a.shape[:-1], b.shape[-1]))
    for index in np.ndindex(out.shape):
        *batch, n, p = index
        for m in range(a.shape[-1]):
            x, y = float(a[(*batch, n, m)]), float(b[(*batch, m, p)])
            if x != 0 and y != 0:
                out[index] += x * y if math.isfinite(x) and math.isfinite(y) else math.nan
    return out


def linear(x, weight, bias=None):
    bias = np.zeros(weight.shape[1]) if bias is None else bias
    columns = list(zip(weight.T, bias, strict=True))
    return along_last_axis(lambda row: [dot(row, column) + b for column, b in columns], x)


def linear_activation_dropout(x, weight, bias, activation, dropout_rate, dropout_key):
    h = linear(x, weight, bias)
    return dropout(ACTIVATIONS[activation](h), dropout_rate, dropout_key), h


def linear_dropout_residual(x, weight, bias, residual, dropout_rate=0.0, dropout_key=None):
    return residual + dropout(linear(x, weight, bias), dropout_rate, dropout_key)


ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelu_erf": gelu_erf, "silu": silu, "swiglu": swiglu}


def conv1d(x, weight, bias=None, dilation=1, causal=False):
    """Each tap w of each output looks up the position it sees, or nothing beyond the ends."""
    (B, T, _), (W, _, D_out) = x.shape, weight.shape
    out = np.zeros((B, T, D_out))
    for b, t, j in np.ndindex(out.shape):
        total = 0.0 if bias is None else float(bias[j])
        for w in range(W):
            s = t - dilation * (W - 1 - w) if causal else t + dilation * (w - W // 2)
            if 0 <= s < T:
                total += dot(x[b, s], weight[w, :, j])
        out[b, t, j] = total
    return out


# Attention.


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


def attend(scores, v, keep_mask=None, causal=False, dropout_rate=0.0, dropout_key=None):
    """``(out, weights, peak, total)`` of given scores."""
    T, S = scores.shape[-2:]
    keep_mask = np.broadcast_to(True if keep_mask is None else keep_mask, scores.shape)
    scores = scores.copy()
    for index in np.ndindex(scores.shape):
        t, s = index[-2:]
        if not keep_mask[index] or (causal and s > t + S - T):
            scores[index] = -math.inf
    weights = softmax(scores)
    used = dropout(weights, dropout_rate, dropout_key)
    out = np.zeros((*scores.shape[:-1], v.shape[-1]))
    for index in np.ndindex(out.shape):
        *head, t, j = index
        out[index] = dot(used[(*head, t)], v[(*head, slice(None), j)])
    return out, weights, along_last_axis(max, scores), along_last_axis(total_of, scores)


def attention_in_full(
    q,
    k,
    v,
    keep_mask=None,
    bias=None,
    causal=False,
    scale=None,
    dropout_rate=0.0,
    softcap=None,
    dropout_key=None,
):
    scores = dot_score(q, k) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap is not None:
        scores = elementwise(lambda score: softcap * math.tanh(score / softcap), scores)
    scores = scores if bias is None else scores + bias
    return attend(scores, v, keep_mask, causal, dropout_rate, dropout_key)


def attention(*arrays, **options):
    out, weights, *_ = attention_in_full(*arrays, **options)
    return out, weights


def flash_attention(*arrays, **options):
    out, _, peak, total = attention_in_full(*arrays, **options)
    return out, peak, total


def cross_attention(q, kv, settings, keep_mask=None, bias=None, dropout_key=None):
    """Each head of keys and values serves as many heads of queries in turn."""
    H, G = settings.n_heads, settings.n_kv_heads or settings.n_heads
    k, v = (split_heads(part, G)[:, np.arange(H) // (H // G)] for part in np.split(kv, 2, axis=-1))
    options = {name: getattr(settings, name) for name in OPTIONS}
    arrays = split_heads(q, H), k, v, keep_mask, bias
    return merge_heads(attention(*arrays, **options, dropout_key=dropout_key)[0])


OPTIONS = "causal", "scale", "dropout_rate", "softcap"


def self_attention(qkv, settings, keep_mask=None, bias=None, dropout_key=None):
    H, G = settings.n_heads, settings.n_kv_heads or settings.n_heads
    width = qkv.shape[-1] // (H + 2 * G) * H
    q, kv = qkv[..., :width], qkv[..., width:]
    return cross_attention(q, kv, settings, keep_mask, bias, dropout_key)


def cached_attention(q, kv, at, settings, keep_mask=None, bias=None):
    """Row by row, of the entries at these places, of which nothing is left out or dropped."""
    settings = replace(settings, causal=False, dropout_rate=0.0)
    return cross_attention(q[:, None], kv[at], settings, keep_mask, bias)[:, 0]


# Scores.


def each_pair(f, q, k):
    """``f(query, key)`` for each query and each key of the same leading index, (..., T, S)."""
    out = np.zeros((*q.shape[:-1], k.shape[-2]))
    for index in np.ndindex(out.shape):
        out[index] = f(q[index[:-1]], k[(*index[:-2], index[-1])])
    return out


def dot_score(q, k):
    return each_pair(dot, q, k)


def scaled_dot_score(q, k):
    return dot_score(q, k) / math.sqrt(q.shape[-1])


def cosine_score(q, k):
    def cosine(query, key):
        lengths = math.hypot(*query) * math.hypot(*key)
        return dot(query, key) / lengths if lengths else 0.0

    return each_pair(cosine, q, k)


def exp_cosine(q, k):
    return elementwise(math.exp, cosine_score(q, k))


def is_same(q, k):
    return each_pair(lambda query, key: float(query.tolist() == key.tolist()), q, k)


def bilinear_score(q, k, weight):
    def form(query, key):
        return math.fsum(query[i] * weight[i, j] * key[j] for i, j in np.ndindex(weight.shape))

    return each_pair(form, q, k)


def additive_score(q, k, w_q, w_k, w_score):
    def hidden_layer(query, key):
        total = 0.0
        for a in range(len(w_score)):
            total += w_score[a] * math.tanh(dot(query, w_q[:, a]) + dot(key, w_k[:, a]))
        return total

    return each_pair(hidden_layer, q, k)


SCORES = {
    "dot": dot_score,
    "scaled_dot": scaled_dot_score,
    "cosine": cosine_score,
    "bilinear": bilinear_score,
    "additive": additive_score,
}


def score_attention(q, k, v, score, params=(), keep_mask=None, causal=False):
    out, weights, *_ = attend(SCORES[score](q, k, *params), v, keep_mask, causal)
    return out, weights


def soft_lookup(query, keys, values, similarity):
    """The mean of the values, weighted with the similarities; 0 if nothing is similar."""
    weights = similarity(query, keys)
    out = np.zeros((*query.shape[:-1], values.shape[-1]))
    for index in np.ndindex(out.shape):
        *batch, t, j = index
        row = weights[(*batch, t)]
        total = math.fsum(row)
        if total:
            out[index] = dot(row, values[(*batch, slice(None), j)]) / total
    return out


# Losses.


def cross_entropy(
    logits, targets, ignore_id=None, label_smoothing=0.0, n_tokens=None, loss_scale=1.0
):
    """``(loss, dlogits)``, the mean over the targets that are not ``ignore_id``."""
    V = logits.shape[-1]
    counted = [index for index in np.ndindex(targets.shape) if targets[index] != ignore_id]
    n_tokens = n_tokens or len(counted)
    loss, dlogits = 0.0, np.zeros(logits.shape)
    for index in counted:
        wanted = [label_smoothing / V] * V
        wanted[targets[index]] += 1 - label_smoothing
        log_p = log_softmax_row(list(logits[index]))
        loss -= dot(wanted, log_p) / n_tokens
        dlogits[index] = [
            loss_scale * (math.exp(log_p[i]) - wanted[i]) / n_tokens for i in range(V)
        ]
    return loss, dlogits


def paired_cross_entropy(
    logits,
    targets,
    consistency,
    ignore_id=None,
    label_smoothing=0.0,
    n_tokens=None,
    loss_scale=1.0,
):
    """The loss of both predictions, and half of both divergences."""
    counted = [index for index in np.ndindex(targets.shape) if targets[index] != ignore_id]
    n_tokens = n_tokens or len(counted)
    loss = 0.0
    for side in logits:
        loss += cross_entropy(side, targets, ignore_id, label_smoothing, n_tokens)[0] / 2
    for index in counted:
        log_p, log_other = (log_softmax_row(list(side[index])) for side in logits)
        for a, b in zip(log_p, log_other, strict=True):
            divergences = math.exp(a) * (a - b) + math.exp(b) * (b - a)
            loss += consistency / 2 * divergences / (2 * n_tokens)
    return (loss,)


def linear_cross_entropy(x, weight, bias, targets, **options):
    return cross_entropy(linear(x, weight, bias), targets, **options)


def linear_paired_cross_entropy(x, weight, bias, targets, consistency, **options):
    return paired_cross_entropy(linear(x, weight, bias), targets, consistency, **options)


def regression_loss(loss_of, slope_of, x, targets, keep_mask, n_tokens, loss_scale):
    """``(loss, dx)``, the mean of a function of x - target over the entries that count."""
    keep_mask = np.broadcast_to(True if keep_mask is None else keep_mask, x.shape)
    counted = [index for index in np.ndindex(x.shape) if keep_mask[index]]
    n_tokens = n_tokens or len(counted)
    loss, dx = 0.0, np.zeros(x.shape)
    for index in counted:
        error = float(x[index]) - float(targets[index])
        loss += loss_of(error) / n_tokens
        dx[index] = loss_scale * slope_of(error) / n_tokens
    return loss, dx


def mse_loss(x, targets, keep_mask=None, n_tokens=None, loss_scale=1.0):
    functions = lambda error: error**2, lambda error: 2 * error
    return regression_loss(*functions, x, targets, keep_mask, n_tokens, loss_scale)


def huber_loss(x, targets, keep_mask=None, delta=1.0, n_tokens=None, loss_scale=1.0):
    def loss_of(error):
        is_small = abs(error) <= delta
        return error**2 / 2 if is_small else delta * (abs(error) - delta / 2)

    def slope_of(error):
        return min(max(error, -delta), delta)

    return regression_loss(loss_of, slope_of, x, targets, keep_mask, n_tokens, loss_scale)


# Words and positions.


def embedding(ids, table):
    out = np.zeros((*ids.shape, table.shape[1]))
    for index in np.ndindex(out.shape):
        out[index] = table[int(ids[index[:-1]]), index[-1]]
    return out


def embed_tokens(ids, table, positions, pad_id, dropout_rate=0.0, dropout_key=None, scaled=True):
    y = embedding(ids, table) * (math.sqrt(table.shape[1]) if scaled else 1)
    y = y if positions is None else y + positions
    for index in np.ndindex(ids.shape):
        if ids[index] == pad_id:
            y[index] = 0
    return dropout(y, dropout_rate, dropout_key)


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


def rotary(
    x, positions, n_heads=1, n_plain=0, base=10000.0, scaling=1.0, pairs="halves", llama3=None
):
    """Each pair of a head is turned by its own angle; the last ``n_plain`` heads stay."""
    out = x.copy()
    K = x.shape[-1] // (n_heads + n_plain)
    positions = np.broadcast_to(positions, x.shape[:-1])
    for index in np.ndindex(x.shape[:-1]):
        for head in range(n_heads):
            for i in range(K // 2):
                frequency = base ** (-2 * i / K)
                frequency = frequency / scaling if llama3 is None else slowed(frequency, llama3)
                angle = int(positions[index]) * frequency
                j = head * K + (i if pairs == "halves" else 2 * i)
                k = j + (K // 2 if pairs == "halves" else 1)
                a, b = x[(*index, j)], x[(*index, k)]
                out[(*index, j)] = a * math.cos(angle) - b * math.sin(angle)
                out[(*index, k)] = a * math.sin(angle) + b * math.cos(angle)
    return out


def slowed(frequency, llama3):
    """As Llama 3.1 says: long waves are stretched, short ones stay, others are between."""
    waves = llama3.original_max_len * frequency / (2 * math.pi)  # in a text of the old length
    if waves > llama3.high_freq_factor:
        return frequency
    if waves < llama3.low_freq_factor:
        return frequency / llama3.factor
    smooth = waves - llama3.low_freq_factor
    smooth /= llama3.high_freq_factor - llama3.low_freq_factor
    return (1 - smooth) * frequency / llama3.factor + smooth * frequency


# Dropout.


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


def dropout(x, dropout_rate, dropout_key):
    """Elements are counted in C order; those that survive are scaled up."""
    out = x.astype(float)
    if dropout_rate == 0:
        return out
    for i in range(x.size):
        survives = random_bits(i, dropout_key) >= dropout_rate * 2**32
        out.flat[i] = out.flat[i] / (1 - dropout_rate) if survives else 0.0
    return out


# Recurrences.


def order(T, reverse):
    return range(T - 1, -1, -1) if reverse else range(T)


def gru(x_gates, h0, weight, bias, keep_mask=None, reverse=False):
    """The states; a step that is left out keeps the state."""
    B, T, D = *x_gates.shape[:2], h0.shape[1]
    states = np.zeros((B, T, D))
    for row in range(B):
        h = [float(x) for x in h0[row]]
        for t in order(T, reverse):
            x = x_gates[row, t]
            said = [dot(h, weight[:, j]) for j in range(3 * D)]
            new = []
            for j in range(D):
                r, z = sigmoid_of(x[j] + said[j]), sigmoid_of(x[D + j] + said[D + j])
                n = math.tanh(x[2 * D + j] + r * (said[2 * D + j] + bias[j]))
                new.append((1 - z) * n + z * h[j])
            h = new if keep_mask is None or keep_mask[row, t] else h
            states[row, t] = h
    return (states,)


def lstm(x_gates, h0, c0, weight, keep_mask=None, reverse=False):
    """(states, cells)"""
    B, T, D = *x_gates.shape[:2], h0.shape[1]
    states, cells = np.zeros((B, T, D)), np.zeros((B, T, D))
    for row in range(B):
        h, c = [float(x) for x in h0[row]], [float(x) for x in c0[row]]
        for t in order(T, reverse):
            a = [x_gates[row, t, j] + dot(h, weight[:, j]) for j in range(4 * D)]
            if keep_mask is None or keep_mask[row, t]:
                opened = [sigmoid_of(a[j]) * math.tanh(a[2 * D + j]) for j in range(D)]
                c = [sigmoid_of(a[D + j]) * c[j] + opened[j] for j in range(D)]
                h = [sigmoid_of(a[3 * D + j]) * math.tanh(c[j]) for j in range(D)]
            states[row, t], cells[row, t] = h, c
    return states, cells
