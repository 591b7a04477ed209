"""A GPT on one page: a decoder-only Transformer of today, in NumPy alone; read it from top to bottom.
``python docs/one_page_gpt.py TEXT`` trains it on the characters of a file, without TEXT on the sentences of this book.

Every building block has the form ``y, backward = f(params, x)``, as in one_page_transformer.py. ``backward(dy)`` takes
the gradient of the loss with respect to y, and returns that with respect to x and those of the parameters, a dict with
the names of params. Axes: B passages of T characters (S, where they are keys), D model width, H heads, K = D/H head
width, F feed-forward width, V different characters.
"""

import os
import re
import sys
import time
from pathlib import Path

if __name__ == "__main__":  # the products are small, and several threads of BLAS would wait for each other
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402


def linear(params, x):
    """x W: (..., D_in) -> (..., D_out)."""

    def backward(dy):
        x_rows, dy_rows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        return dy @ params["weight"].T, {"weight": x_rows.T @ dy_rows}

    return x @ params["weight"], backward


def embed(table, ids):
    """The row of the table (V, D) for each id of a character: (B, T) -> (B, T, D)."""

    def backward(dx):
        dtable = np.zeros_like(table)
        np.add.at(dtable, ids, dx)  # an id that occurs twice gets the sum
        return dtable

    return table[ids], backward


def rms_norm(params, x, eps=1e-6):
    """Divide each row by its root mean square, then multiply by a gain: (B, T, D) -> (B, T, D)."""
    rstd = 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    x_hat = x * rstd

    def backward(dy):
        dx_hat = dy * params["gain"]
        slope = (dx_hat * x_hat).mean(axis=-1, keepdims=True)
        return rstd * (dx_hat - x_hat * slope), {"gain": (dy * x_hat).sum(axis=(0, 1))}

    return x_hat * params["gain"], backward


def feed_forward(params, x):
    """(silu(a) ⊙ b) W_2 with a, b = x W_1, for each position alone: (B, T, D) -> (B, T, 2F), (B, T, F), (B, T, D)."""
    ab, hidden_backward = linear(params["hidden"], x)
    a, b = np.split(ab, 2, axis=-1)
    s = 1 / (1 + np.exp(-a))  # the sigmoid of a: silu(a) = a s
    y, out_backward = linear(params["out"], a * s * b)

    def backward(dy):
        dh, out_grads = out_backward(dy)
        da, db = dh * b * s * (1 + a * (1 - s)), dh * a * s
        dx, hidden_grads = hidden_backward(np.concatenate([da, db], axis=-1))
        return dx, {"hidden": hidden_grads, "out": out_grads}

    return y, backward


def rotary(x, base=10000.0):
    """At position t, turn the pair of entries i and i + K/2 by the angle t base^(-2i/K): x (B, H, T, K)."""
    T, K = x.shape[-2:]
    angles = np.arange(T)[:, None] * base ** (-2 * np.arange(K // 2) / K)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)

    def turned(x, sin):
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

    def backward(dy):
        return turned(dy, -sin)  # by the opposite angle

    return turned(x, sin), backward


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(q, k, v, keep_mask):
    """softmax(q kᵀ / √K) v: q (B, H, T, K), k and v (B, H, S, K), keep_mask of a shape that fits (B, H, T, S)."""
    scale = q.shape[-1] ** -0.5
    scores = scale * q @ k.swapaxes(-1, -2)
    weights = softmax(np.where(keep_mask, scores, -np.inf))

    def backward(dout):
        dweights = dout @ v.swapaxes(-1, -2)
        dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
        dq, dk = scale * dscores @ k, scale * dscores.swapaxes(-1, -2) @ q
        dv = weights.swapaxes(-1, -2) @ dout
        return dq, dk, dv

    return weights @ v, backward


def split_heads(x, n_heads):
    B, T, D = x.shape
    return x.reshape(B, T, n_heads, D // n_heads).transpose(0, 2, 1, 3)  # (B, H, T, K)


def merge_heads(x):
    B, H, T, K = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, T, H * K)


def self_attention(params, x, n_heads):
    """Each position of x (B, T, D) attends to itself and to those before it; positions turn queries and keys."""
    qkv, qkv_backward = linear(params["qkv"], x)  # (B, T, 3D)
    q, k, v = (split_heads(part, n_heads) for part in np.split(qkv, 3, axis=-1))
    (q, q_backward), (k, k_backward) = rotary(q), rotary(k)
    heads, attention_backward = attention(q, k, v, np.tri(x.shape[1], dtype=bool))  # on and below the diagonal
    y, out_backward = linear(params["out"], merge_heads(heads))

    def backward(dy):
        dheads, out_grads = out_backward(dy)
        dq, dk, dv = attention_backward(split_heads(dheads, n_heads))
        dqkv = [merge_heads(part) for part in (q_backward(dq), k_backward(dk), dv)]
        dx, qkv_grads = qkv_backward(np.concatenate(dqkv, axis=-1))
        return dx, {"qkv": qkv_grads, "out": out_grads}

    return y, backward


def decoder_layer(params, x0, n_heads):
    """Self-attention, then feed-forward: each reads its input normalised, and its result is added to the input."""
    h0, norm1_backward = rms_norm(params["attention_norm"], x0)
    attended, attend_backward = self_attention(params["attention"], h0, n_heads)
    x1 = x0 + attended
    h1, norm2_backward = rms_norm(params["feed_forward_norm"], x1)
    fed, feed_backward = feed_forward(params["feed_forward"], h1)

    def backward(dx2):
        grads = {}
        dh1, grads["feed_forward"] = feed_backward(dx2)
        dnormed, grads["feed_forward_norm"] = norm2_backward(dh1)
        dx1 = dx2 + dnormed
        dh0, grads["attention"] = attend_backward(dx1)
        dnormed, grads["attention_norm"] = norm1_backward(dh0)
        return dx1 + dnormed, grads

    return x1 + fed, backward


def gpt(params, ids, n_heads):
    """Ids of characters (B, T) -> the logits of each next character (B, T, V)."""
    names, layer_backwards = [name for name in params["layers"] if name != "norm"], {}
    x, embed_backward = embed(params["embedding"], ids)
    for name in names:
        x, layer_backwards[name] = decoder_layer(params["layers"][name], x, n_heads)
    y, norm_backward = rms_norm(params["layers"]["norm"], x)
    logits, output_backward = linear(params["output"], y)

    def backward(dlogits):
        grads = {"layers": {}}
        dy, grads["output"] = output_backward(dlogits)
        dx, grads["layers"]["norm"] = norm_backward(dy)
        for name in reversed(names):
            dx, grads["layers"][name] = layer_backwards[name](dx)
        grads["embedding"] = embed_backward(dx)
        return grads

    return logits, backward


def cross_entropy(logits, targets):
    """The mean loss of the targets (B, T), ids of characters, and the gradient of the logits (B, T, V)."""
    wanted = np.eye(logits.shape[-1], dtype=logits.dtype)[targets]  # a distribution for each character
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return -(wanted * log_p).sum() / wanted.sum(), (np.exp(log_p) - wanted) / wanted.sum()


def loss_and_grad(params, ids, n_heads):
    """The mean loss of all characters of ids (B, T+1) but the first, each predicted from those before it."""
    logits, backward = gpt(params, ids[:, :-1], n_heads)
    loss, dlogits = cross_entropy(logits, ids[:, 1:])
    return loss, backward(dlogits)


def init(rng, vocab, d_model, n_layers, d_ff, dtype=np.float32):
    """New parameters: Xavier uniform for each map, variance 1 for the embeddings."""

    def new_linear(d_in, d_out, n_maps=1):
        bound = (6 / (d_in + d_out)) ** 0.5
        return {"weight": rng.uniform(-bound, bound, (d_in, n_maps * d_out)).astype(dtype)}

    layers = {"norm": {"gain": np.ones(d_model, dtype)}}  # after the last layer
    for name in map(str, range(n_layers)):
        layers[name] = {f"{part}_norm": {"gain": np.ones(d_model, dtype)} for part in ("attention", "feed_forward")}
        layers[name]["attention"] = {"qkv": new_linear(d_model, d_model, 3), "out": new_linear(d_model, d_model)}
        layers[name]["feed_forward"] = {"hidden": new_linear(d_model, d_ff, 2), "out": new_linear(d_ff, d_model)}
    embedding = rng.normal(size=(vocab, d_model)).astype(dtype)
    return {"embedding": embedding, "layers": layers, "output": new_linear(d_model, vocab)}


def adam_step(params, grads, means, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    """Update every array of params in place; means holds the running means of g and g², at first {}."""
    for name, g in grads.items():
        if isinstance(g, dict):
            adam_step(params[name], g, means.setdefault(name, {}), step, lr, beta1, beta2, eps)
            continue
        m, v = means.get(name, (0.0, 0.0))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        means[name] = m, v
        params[name] -= lr * (m / (1 - beta1**step)) / (np.sqrt(v / (1 - beta2**step)) + eps)


def write(params, ids, n_heads, n_more, rng, temperature=0.8, context=64):
    """Draw a character from softmax(logits / temperature), append it to ids (T,), and so on n_more times."""
    for _ in range(n_more):
        logits, _ = gpt(params, ids[None, -context:], n_heads)
        p = softmax(logits[0, -1] / temperature)
        ids = np.append(ids, rng.choice(len(p), p=p))
    return ids


def sentences_of_the_book():
    """Each on a line; code, formulas and the addresses of links are left out."""
    pages = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*/*.md")))
    text = re.sub(r"(?s)\[(.*?)\]\(.*?\)", r"\1", re.sub(r"(?s)```.*?```", "", pages))
    return "\n".join(" ".join(s.split()) for s in re.findall(r"(?a)[A-Z][\w\s,;:'\"()-]+[.?!]", text))


def train(text, n_steps, n_heads=4, size=16, length=64, peak=0.003, warmup=100, show=(0, 100, 1000, 5000)):
    """Train on nine tenths of the text; at some steps, show the loss there and in the last tenth, and a sample."""
    rng, other = np.random.default_rng(0).spawn(2)  # what is shown does not change what is learned
    means, window, start = {}, np.arange(length + 1), time.perf_counter() / 60
    characters, ids = np.unique(list(text), return_inverse=True)  # an id for each different character
    read, new = np.split(ids, [len(ids) * 9 // 10])
    if len(new) <= length:
        raise ValueError(f"the text has {len(ids)} characters, expected more than {10 * length}")
    params = init(rng, len(characters), d_model=96, n_layers=3, d_ff=256)
    for step in range(n_steps + 1):
        loss, grads = loss_and_grad(params, read[rng.integers(0, len(read) - length, (size, 1)) + window], n_heads)
        if step in show:
            new_loss, _ = loss_and_grad(params, new[other.integers(0, len(new) - length, (64, 1)) + window], n_heads)
            print(f"step {step}: loss {loss:.2f}, new text {new_loss:.2f}, {time.perf_counter() / 60 - start:.1f} min")
            print("".join(characters[write(params, ids[:1], n_heads, 300, other)]), flush=True)
        adam_step(params, grads, means, step + 1, lr=peak * min((step + 1) / warmup, 1 - step / (n_steps + 1)))
    return params, characters


if __name__ == "__main__":
    train(Path(sys.argv[1]).read_text(encoding="utf-8") if sys.argv[1:] else sentences_of_the_book(), n_steps=5000)
