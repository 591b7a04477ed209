"""Right answers that are written otherwise than ours, by the names of the exercises."""

import heapq

import numpy as np


def softmax(x):
    x = x - np.max(x, axis=-1, keepdims=True)
    return np.exp(x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True)))


def attention(q, k, v):
    s = np.einsum("...tk,...sk->...ts", q / q.shape[-1] ** 0.5, k)
    s = s - s.max(-1)[..., None]
    w = np.exp(s)
    w = w / w.sum(-1)[..., None]
    return (np.einsum("...ts,...sv->...tv", w, v), w)


def softmax_backward(dy, y):
    dx = np.zeros_like(y)
    for i in np.ndindex(y.shape[:-1]):
        J = np.diag(y[i]) - np.outer(y[i], y[i])
        dx[i] = J @ dy[i]
    return dx


def causal_mask(T, S):
    return np.tril(np.ones((T, S), bool), k=S - T)


def padding_mask(ids, pad_id):
    return np.logical_not(np.equal(ids, pad_id)).reshape(len(ids), 1, 1, -1)


def layer_norm(x, gain, bias, eps):
    return gain * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) + bias


def linear_backward(dy, x, weight, bias):
    ax = tuple(range(x.ndim - 1))
    dx = np.einsum("...f,df->...d", dy, weight)
    return [dx, np.tensordot(x, dy, axes=(ax, ax)), dy.sum(axis=ax)]


def greedy(next_logits, bos, eos, max_len):
    out = []
    for _ in range(max_len):
        out.append(np.argmax(next_logits([bos] + out)))
        if out[-1] == eos:
            break
    return out


def split_heads(x, n_heads):
    return np.stack(np.split(x, n_heads, axis=-1), axis=-3)


def merge_heads(heads):
    return np.concatenate([heads[..., h, :, :] for h in range(heads.shape[-3])], axis=-1)


def embedding_backward(dy, ids, n_words):
    d = np.zeros((n_words, dy.shape[-1]))
    for i in np.ndindex(ids.shape):
        d[ids[i]] += dy[i]
    return d


def cross_entropy(logits, targets):
    n, V = logits.shape
    m = logits.max(1, keepdims=True)
    z = np.exp(logits - m)
    lse = m[:, 0] + np.log(z.sum(1))
    loss = float(np.mean(lse - logits[range(n), targets]))
    return (loss, (z / z.sum(1, keepdims=True) - np.eye(V)[targets]) / n)


def noam_rate(step, d_model, warmup):
    return 1 / np.sqrt(d_model) * min(1 / np.sqrt(step), step / (warmup * np.sqrt(warmup)))


def relu_backward(dy, x):
    return dy * (x > 0)


def gelu_backward(dy, x):
    c = np.sqrt(2 / np.pi)
    u = c * (x + 0.044715 * x**3)
    du = c * (1 + 0.134145 * x * x)
    return dy * 0.5 * (1 + np.tanh(u) + x / np.cosh(u) ** 2 * du)


def dropout_backward(dy, kept, rate):
    return dy * kept / (1 - rate)


def adam_step(param, grad, m, v, step, lr, beta1, beta2, eps):
    m = m + (1 - beta1) * (grad - m)
    v = v + (1 - beta2) * (grad * grad - v)
    c = np.sqrt(1 - beta2**step)
    a = lr * c / (1 - beta1**step)
    return (param - a * m / (np.sqrt(v) + eps * c), m, v)


def soft_lookup(similarities, values):
    return np.average(values, axis=0, weights=similarities)


def sinusoidal_positions(length, d_model):
    pe = np.empty((length, d_model))
    for p in range(length):
        for j in range(d_model):
            a = p / 10000 ** (2 * (j // 2) / d_model)
            pe[p, j] = np.cos(a) if j % 2 else np.sin(a)
    return pe


def residual_backward(dy, x, weight):
    on = x @ weight > 0
    return (dy + dy * on @ weight.T, x.T @ (dy * on))


def running_attention(q, blocks):
    m = None
    for k, v in blocks:
        s = k @ q / q.size**0.5
        b = s.max()
        e = np.exp(s - b)
        if m is None:
            m, total, o = (b, e.sum(), e @ v)
        else:
            n = max(m, b)
            total = total * np.exp(m - n) + e.sum() * np.exp(b - n)
            o = o * np.exp(m - n) + e @ v * np.exp(b - n)
            m = n
    return o / total


def beam_search(next_log_p, bos, eos, max_len, beam_size):
    beam = [(0.0, (bos,))]
    done = []
    for _ in range(max_len):
        c = []
        for s, t in beam:
            c += [(s + float(lp), t + (w,)) for w, lp in enumerate(next_log_p(list(t)))]
        c = heapq.nlargest(beam_size, c)
        done += [x for x in c if x[1][-1] == eos]
        beam = [x for x in c if x[1][-1] != eos]
    s, t = max(done + beam)
    return (t[1:], s)


def masked_attention(q, k, v, keep):
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** (-0.5)
    keep = np.broadcast_to(keep, s.shape)
    m = np.max(np.where(keep, s, -np.inf), axis=-1, keepdims=True)
    m = np.where(np.isfinite(m), m, 0)
    e = np.where(keep, np.exp(np.minimum(s - m, 0)), 0)
    t = e.sum(-1, keepdims=True)
    return np.divide(e, t, out=np.zeros_like(e), where=t > 0) @ v


def nucleus(p, top_p):
    o = np.argsort(p)[::-1]
    n = int(np.searchsorted(np.cumsum(p[o]), top_p)) + 1
    out = np.zeros_like(p)
    out[o[:n]] = p[o[:n]]
    return out / out.sum()


def smoothed_cross_entropy(logits, targets, smoothing, pad_id):
    n, V = logits.shape
    d = np.zeros((n, V))
    loss = 0
    c = int((targets != pad_id).sum())
    for i, t in enumerate(targets):
        if t == pad_id:
            continue
        x = logits[i] - logits[i].max()
        lp = x - np.log(np.exp(x).sum())
        q = np.full(V, smoothing / V)
        q[t] += 1 - smoothing
        loss -= q @ lp / c
        d[i] = (np.exp(lp) - q) / c
    return (loss, d)


def fix_polarity(scores, ids, pad_id):
    s = scores.copy()
    for b in range(len(ids)):
        s[b][:, ids[b] == pad_id] = -np.inf
    return softmax(s)


def fix_square_mask(n_heads, length):
    m = np.zeros((n_heads, length, length))
    i = np.triu_indices(length, 1)
    m[:, i[0], i[1]] = -np.inf
    return m


def fix_loss(logits, targets, pad_id):
    k = targets != pad_id
    return cross_entropy(logits[k], targets[k])[0]


def attention_backward(dout, q, k, v, weights):
    dP = np.einsum("...tv,...sv->...ts", dout, v)
    dS = weights * (dP - (weights * dP).sum(-1, keepdims=True)) / q.shape[-1] ** 0.5
    dq = np.einsum("...ts,...sk->...tk", dS, k)
    dk = np.einsum("...ts,...tk->...sk", dS, q)
    dv = np.einsum("...ts,...tv->...sv", weights, dout)
    return dq, dk, dv


def layer_norm_backward(dy, x, gain, mean, rstd):
    D = x.shape[-1]
    xh = (x - mean) * rstd
    g = dy * gain
    dx = D * g - g.sum(-1, keepdims=True) - xh * (g * xh).sum(-1, keepdims=True)
    ax = tuple(range(x.ndim - 1))
    return rstd / D * dx, (dy * xh).sum(ax), dy.sum(ax)


# The whole functions of one's own GPT, which need others of its page.
OF_GPT = {
    "gpt/embed": """
def embed(table, ids):
    def backward(dx):
        dtable = np.zeros_like(table)
        for b in range(ids.shape[0]):
            for t in range(ids.shape[1]):
                dtable[ids[b, t]] += dx[b, t]
        return dtable

    return np.eye(len(table), dtype=table.dtype)[ids] @ table, backward
""",
    "gpt/rms_norm": """
def rms_norm(params, x, eps=1e-6):
    rms = np.sqrt(np.mean(x * x, -1, keepdims=True) + eps)

    def backward(dy):
        dxhat = dy * params["gain"]
        dx = dxhat / rms - x * np.sum(dxhat * x, -1, keepdims=True) / (x.shape[-1] * rms**3)
        return dx, {"gain": np.einsum("btd,btd->d", dy, x / rms)}

    return x / rms * params["gain"], backward
""",
    "gpt/feed_forward": """
def feed_forward(params, x):
    ab, first = linear(params["hidden"], x)
    F = ab.shape[-1] // 2
    a, b = ab[..., :F], ab[..., F:]
    sigmoid = 0.5 * (1 + np.tanh(a / 2))
    silu = a * sigmoid
    y, second = linear(params["out"], silu * b)

    def backward(dy):
        dh, out = second(dy)
        dab = np.empty_like(ab)
        dab[..., :F] = dh * b * (sigmoid + silu * (1 - sigmoid))
        dab[..., F:] = dh * silu
        dx, hidden = first(dab)
        return dx, dict(hidden=hidden, out=out)

    return y, backward
""",
    "gpt/rotary": """
def rotary(x, base=10000.0):
    T, K = x.shape[2], x.shape[3]
    turn = np.exp(1j * np.arange(T)[:, None] / base ** (np.arange(0, K, 2) / K))

    def turned(x, turn):
        z = (x[..., : K // 2] + 1j * x[..., K // 2 :]) * turn
        return np.concatenate([z.real, z.imag], -1).astype(x.dtype)

    return turned(x, turn), lambda dy: turned(dy, turn.conj())
""",
    "gpt/self_attention": """
def self_attention(params, x, n_heads):
    T = x.shape[1]
    qkv, qkv_back = linear(params["qkv"], x)
    q, k, v = [split_heads(each, n_heads) for each in np.split(qkv, 3, -1)]
    q, q_back = rotary(q)
    k, k_back = rotary(k)
    out, back = attention(q, k, v, np.arange(T) <= np.arange(T)[:, None])
    y, out_back = linear(params["out"], merge_heads(out))

    def backward(dy):
        dout, g_out = out_back(dy)
        dq, dk, dv = back(split_heads(dout, n_heads))
        gradients = [merge_heads(q_back(dq)), merge_heads(k_back(dk)), merge_heads(dv)]
        dx, g_qkv = qkv_back(np.concatenate(gradients, -1))
        return dx, {"out": g_out, "qkv": g_qkv}

    return y, backward
""",
    "gpt/cross_entropy": """
def cross_entropy(logits, targets):
    B, T, V = logits.shape
    z = (logits - logits.max(-1, keepdims=True)).reshape(B * T, V)
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    rows = np.arange(B * T), targets.reshape(-1)
    dlogits = np.exp(log_p)
    dlogits[rows] -= 1
    return -log_p[rows].mean(), dlogits.reshape(B, T, V) / (B * T)
""",
    "gpt/write": """
def write(params, ids, n_heads, n_more, rng, temperature=0.8, context=64):
    ids = list(ids)
    while n_more > 0:
        logits = gpt(params, np.array([ids[-context:]]), n_heads)[0][0, -1] / temperature
        ids.append(rng.choice(len(logits), p=softmax(logits)))
        n_more -= 1
    return np.array(ids)
""",
}
