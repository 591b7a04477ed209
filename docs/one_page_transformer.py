"""A Transformer on one page: encoder and decoder, forward and backward, in NumPy alone; read it from top to bottom.

Every building block has the form ``y, backward = f(params, x)``. ``backward(dy)`` takes the gradient of the loss with
respect to y, and returns the gradient with respect to x and those of the parameters, a dict with the names of params.

Axes: B sentences of a batch, T target tokens (in ``attention``: queries), S source tokens (keys), D model width, H
heads, K = D/H head width, F feed-forward width, V vocabulary. Masks are boolean, True = may attend.
"""

import os
import time

if __name__ == "__main__":  # the products are small, and several threads of BLAS would wait for each other
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402

PAD, BEGIN, END = 0, 1, 2  # the ids of padding, begin token and end token


# Building blocks


def linear(params, x):
    """x W + b: (..., D_in) -> (..., D_out)."""
    y = x @ params["weight"] + params["bias"]

    def backward(dy):
        x_rows, dy_rows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        grads = {"weight": x_rows.T @ dy_rows, "bias": dy_rows.sum(axis=0)}
        return dy @ params["weight"].T, grads

    return y, backward


def layer_norm(params, x, eps=1e-5):
    """Normalise each row to mean 0 and variance 1, then multiply by a gain and add a bias: (..., D) -> (..., D)."""
    deviation = x - x.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt((deviation**2).mean(axis=-1, keepdims=True) + eps)
    x_hat = deviation * rstd

    def backward(dy):
        rows = tuple(range(dy.ndim - 1))  # all axes but the last
        dx_hat = dy * params["gain"]
        mean = dx_hat.mean(axis=-1, keepdims=True)
        slope = (dx_hat * x_hat).mean(axis=-1, keepdims=True)
        dx = rstd * (dx_hat - mean - x_hat * slope)
        return dx, {"gain": (dy * x_hat).sum(axis=rows), "bias": dy.sum(axis=rows)}

    return x_hat * params["gain"] + params["bias"], backward


def feed_forward(params, x):
    """relu(x W_1 + b_1) W_2 + b_2, for each position alone: (B, T, D) -> (B, T, F) -> (B, T, D)."""
    h, hidden_backward = linear(params["hidden"], x)
    y, out_backward = linear(params["out"], np.maximum(h, 0))

    def backward(dy):
        drelu, out_grads = out_backward(dy)
        dx, hidden_grads = hidden_backward(np.where(h > 0, drelu, 0))
        return dx, {"hidden": hidden_grads, "out": out_grads}

    return y, backward


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


def self_attention(params, x, keep_mask, n_heads):
    """Each position of x (B, T, D) attends to the positions of x."""
    qkv, qkv_backward = linear(params["qkv"], x)  # (B, T, 3D)
    q, k, v = (split_heads(part, n_heads) for part in np.split(qkv, 3, axis=-1))
    heads, attention_backward = attention(q, k, v, keep_mask)
    y, out_backward = linear(params["out"], merge_heads(heads))

    def backward(dy):
        dheads, out_grads = out_backward(dy)
        dqkv = [merge_heads(part) for part in attention_backward(split_heads(dheads, n_heads))]
        dx, qkv_grads = qkv_backward(np.concatenate(dqkv, axis=-1))
        return dx, {"qkv": qkv_grads, "out": out_grads}

    return y, backward


def cross_attention(params, x, memory, keep_mask, n_heads):
    """Each position of x (B, T, D) attends to the positions of memory (B, S, D), the output of the encoder."""
    q, q_backward = linear(params["q"], x)
    kv, kv_backward = linear(params["kv"], memory)  # (B, S, 2D)
    k, v = (split_heads(part, n_heads) for part in np.split(kv, 2, axis=-1))
    heads, attention_backward = attention(split_heads(q, n_heads), k, v, keep_mask)
    y, out_backward = linear(params["out"], merge_heads(heads))

    def backward(dy):
        dheads, out_grads = out_backward(dy)
        dq, dk, dv = (merge_heads(part) for part in attention_backward(split_heads(dheads, n_heads)))
        dx, q_grads = q_backward(dq)
        dmemory, kv_grads = kv_backward(np.concatenate([dk, dv], axis=-1))
        return dx, dmemory, {"q": q_grads, "kv": kv_grads, "out": out_grads}

    return y, backward


# Layers


def encoder_layer(params, x0, keep_mask, n_heads):
    """Self-attention, then feed-forward; each is added to its input, and the sum is normalised."""
    attended, attend_backward = self_attention(params["attention"], x0, keep_mask, n_heads)
    x1, norm1_backward = layer_norm(params["attention_norm"], x0 + attended)
    fed, feed_backward = feed_forward(params["feed_forward"], x1)
    x2, norm2_backward = layer_norm(params["feed_forward_norm"], x1 + fed)

    def backward(dx2):
        grads = {}
        dsum, grads["feed_forward_norm"] = norm2_backward(dx2)
        dfed, grads["feed_forward"] = feed_backward(dsum)
        dsum, grads["attention_norm"] = norm1_backward(dsum + dfed)
        dattended, grads["attention"] = attend_backward(dsum)
        return dsum + dattended, grads

    return x2, backward


def decoder_layer(params, x0, memory, keep_mask, memory_keep_mask, n_heads):
    """As the encoder layer, with attention to the encoder's output in between."""
    attended, attend_backward = self_attention(params["attention"], x0, keep_mask, n_heads)
    x1, norm1_backward = layer_norm(params["attention_norm"], x0 + attended)
    read, read_backward = cross_attention(params["memory_attention"], x1, memory, memory_keep_mask, n_heads)
    x2, norm2_backward = layer_norm(params["memory_attention_norm"], x1 + read)
    fed, feed_backward = feed_forward(params["feed_forward"], x2)
    x3, norm3_backward = layer_norm(params["feed_forward_norm"], x2 + fed)

    def backward(dx3):
        grads = {}
        dsum, grads["feed_forward_norm"] = norm3_backward(dx3)
        dfed, grads["feed_forward"] = feed_backward(dsum)
        dsum, grads["memory_attention_norm"] = norm2_backward(dsum + dfed)
        dread, dmemory, grads["memory_attention"] = read_backward(dsum)
        dsum, grads["attention_norm"] = norm1_backward(dsum + dread)
        dattended, grads["attention"] = attend_backward(dsum)
        return dsum + dattended, dmemory, grads

    return x3, backward


# The model


def sinusoidal_encoding(length, d_model):
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, -1)[:, :d_model]


def embed(table, ids):
    """√D · table[id] + position, and zeros for padding: ids (B, T) -> (B, T, D)."""
    scale, is_token = table.shape[1] ** 0.5, (ids != PAD)[..., None]
    x = np.where(is_token, table[ids] * scale + sinusoidal_encoding(ids.shape[1], table.shape[1]), 0)

    def backward(dx):
        dtable = np.zeros_like(table)
        np.add.at(dtable, ids, np.where(is_token, dx * scale, 0))  # an id that occurs twice gets the sum
        return dtable

    return x, backward


def transformer(params, src, tgt_in, n_heads):
    """Source ids (B, S) and target ids (B, T) -> the logits of each next target token (B, T, V)."""
    is_src = (src != PAD)[:, None, None, :]  # (B, 1, 1, S)
    is_tgt = (tgt_in != PAD)[:, None, None, :]  # (B, 1, 1, T)
    is_past = np.tri(tgt_in.shape[1], dtype=bool)  # (T, T): on and below the diagonal
    encoder = [params["encoder"][str(i)] for i in range(len(params["encoder"]))]
    decoder = [params["decoder"][str(i)] for i in range(len(params["decoder"]))]
    encoder_backwards, decoder_backwards = [], []

    memory, embed_src_backward = embed(params["source_embedding"], src)
    for layer in encoder:
        memory, backward = encoder_layer(layer, memory, is_src, n_heads)
        encoder_backwards.append(backward)

    x, embed_tgt_backward = embed(params["target_embedding"], tgt_in)
    for layer in decoder:
        x, backward = decoder_layer(layer, x, memory, is_past & is_tgt, is_src, n_heads)
        decoder_backwards.append(backward)
    logits, output_backward = linear(params["output"], x)

    def backward(dlogits):
        grads, dmemory = {"encoder": {}, "decoder": {}}, np.zeros_like(memory)
        dx, grads["output"] = output_backward(dlogits)
        for i in reversed(range(len(decoder))):
            dx, dmemory_of_layer, grads["decoder"][str(i)] = decoder_backwards[i](dx)
            dmemory += dmemory_of_layer  # every decoder layer reads the same memory
        for i in reversed(range(len(encoder))):
            dmemory, grads["encoder"][str(i)] = encoder_backwards[i](dmemory)
        grads["source_embedding"] = embed_src_backward(dmemory)
        grads["target_embedding"] = embed_tgt_backward(dx)
        return grads

    return logits, backward


def cross_entropy(logits, targets, label_smoothing=0.0):
    """The mean loss per target that is not padding, and its gradient with respect to the logits (B, T, V)."""
    V, counted = logits.shape[-1], (targets != PAD)[..., None]
    wanted = (1 - label_smoothing) * np.eye(V)[targets] + label_smoothing / V  # a distribution for each target
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    share = counted / counted.sum()
    return -(share * wanted * log_p).sum(), share * (np.exp(log_p) - wanted)


def loss_and_grad(params, src, tgt, n_heads, label_smoothing=0.0):
    """The decoder reads tgt (B, T+1) without its last token, and predicts it without its first."""
    logits, backward = transformer(params, src, tgt[:, :-1], n_heads)
    loss, dlogits = cross_entropy(logits, tgt[:, 1:], label_smoothing)
    return loss, backward(dlogits)


# Training and decoding


def init(rng, vocab, d_model, n_layers, d_ff):
    """New parameters: Xavier uniform for each map, variance 1/D for the embeddings."""

    def new_linear(d_in, d_out, n_maps=1):
        bound = (6 / (d_in + d_out)) ** 0.5
        return {"weight": rng.uniform(-bound, bound, (d_in, n_maps * d_out)), "bias": np.zeros(n_maps * d_out)}

    def new_layer(sublayers):
        maps = {
            "attention": {"qkv": (d_model, d_model, 3), "out": (d_model, d_model)},
            "memory_attention": {"q": (d_model, d_model), "kv": (d_model, d_model, 2), "out": (d_model, d_model)},
            "feed_forward": {"hidden": (d_model, d_ff), "out": (d_ff, d_model)},
        }
        layer = {name: {key: new_linear(*sizes) for key, sizes in maps[name].items()} for name in sublayers}
        return layer | {f"{name}_norm": {"gain": np.ones(d_model), "bias": np.zeros(d_model)} for name in sublayers}

    return {
        "source_embedding": rng.normal(size=(vocab, d_model)) / d_model**0.5,
        "target_embedding": rng.normal(size=(vocab, d_model)) / d_model**0.5,
        "encoder": {str(i): new_layer(["attention", "feed_forward"]) for i in range(n_layers)},
        "decoder": {str(i): new_layer(["attention", "memory_attention", "feed_forward"]) for i in range(n_layers)},
        "output": new_linear(d_model, vocab),
    }


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


def greedy_decode(params, src, n_heads, max_len):
    """Append the most probable token again and again, until every sentence has its end token: (B, T)."""
    said = np.full((len(src), 1), BEGIN)
    while said.shape[1] <= max_len and not (said == END).any(axis=1).all():
        logits, _ = transformer(params, src, said, n_heads)
        ended = (said == END).any(axis=1)
        said = np.column_stack([said, np.where(ended, PAD, logits[:, -1, PAD + 1 :].argmax(axis=-1) + PAD + 1)])
    return said[:, 1:]


def copy_batch(rng, size, vocab=11, max_len=10):
    """Random sources (B, S) of 1 to max_len symbols, and their copies between begin and end token (B, T+1)."""
    src, tgt = np.full((size, max_len), PAD), np.full((size, max_len + 2), PAD)
    for b, length in enumerate(rng.integers(1, max_len + 1, size)):
        src[b, :length] = tgt[b, 1 : length + 1] = rng.integers(END + 1, vocab, length)
        tgt[b, 0], tgt[b, length + 1] = BEGIN, END
    return src, tgt


def train(n_steps, n_heads=4, size=32, peak=0.003, warmup=100, seed=0, every=200):
    """Train a small model to copy; the learning rate rises to its peak in ``warmup`` steps, then falls to 0."""
    rng, means, start = np.random.default_rng(seed), {}, time.perf_counter()
    params = init(rng, vocab=11, d_model=32, n_layers=2, d_ff=64)
    for step in range(1, n_steps + 1):
        loss, grads = loss_and_grad(params, *copy_batch(rng, size), n_heads)
        lr = peak * min(step / warmup, (n_steps + 1 - step) / (n_steps + 1 - warmup))
        adam_step(params, grads, means, step, lr)
        if step % every == 0:
            print(f"step {step:4}   loss {loss:.4f}   {time.perf_counter() - start:4.1f} s", flush=True)
    return params


if __name__ == "__main__":
    trained = train(n_steps=1200)
    sources, targets = copy_batch(np.random.default_rng(1), 100)
    copies = greedy_decode(trained, sources, n_heads=4, max_len=targets.shape[1] - 1)
    for source, copy in list(zip(sources, copies, strict=True))[:3]:
        print("read", source[source != PAD], "wrote", copy[copy != PAD])
    n_right = (copies == targets[:, 1 : copies.shape[1] + 1]).all(axis=1).sum()
    print(f"{n_right} of 100 new sequences are copied without a mistake")
