"""Thirty wrong answers that learners usually write in the exercises of a GPT.

A row has the key of the exercise, the whole function, and words of the right explanation. The
comment above it says what is wrong.
"""

WRITTEN = [
    # an id that occurs twice gets only one of its gradients
    (
        "gpt/embed",
        """
def embed(table, ids):
    x = table[ids]
    def backward(dx):
        dtable = np.zeros_like(table)
        dtable[ids] += dx
        return dtable
    return x, backward
""",
        "an id that occurs twice",
    ),
    # the gradient of x itself is returned, not that of the table
    (
        "gpt/embed",
        """
def embed(table, ids):
    def backward(dx):
        return dx
    return table[ids], backward
""",
        "this is the gradient of x",
    ),
    # the mean is subtracted, as in layer norm
    (
        "gpt/rms_norm",
        """
def rms_norm(params, x, eps=1e-6):
    d = x - x.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt((d**2).mean(axis=-1, keepdims=True) + eps)
    x_hat = d * rstd
    def backward(dy):
        dx_hat = dy * params["gain"]
        slope = (dx_hat * x_hat).mean(axis=-1, keepdims=True)
        dx = rstd * (dx_hat - dx_hat.mean(axis=-1, keepdims=True) - x_hat * slope)
        return dx, {"gain": (dy * x_hat).sum(axis=(0, 1))}
    return x_hat * params["gain"], backward
""",
        "no mean is subtracted",
    ),
    # eps outside of the root
    (
        "gpt/rms_norm",
        """
def rms_norm(params, x, eps=1e-6):
    rms = np.sqrt((x**2).mean(axis=-1, keepdims=True)) + eps
    x_hat = x / rms
    def backward(dy):
        dx_hat = dy * params["gain"]
        slope = (dx_hat * x_hat).mean(axis=-1, keepdims=True)
        return (dx_hat - x_hat * slope) / rms, {"gain": (dy * x_hat).sum(axis=(0, 1))}
    return x_hat * params["gain"], backward
""",
        "eps belongs inside the root",
    ),
    # the root mean square is taken for a constant in dx
    (
        "gpt/rms_norm",
        """
def rms_norm(params, x, eps=1e-6):
    rstd = 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    x_hat = x * rstd
    def backward(dy):
        return dy * params["gain"] * rstd, {"gain": (dy * x_hat).sum(axis=(0, 1))}
    return x_hat * params["gain"], backward
""",
        "the root mean square depends on x too",
    ),
    # the gain is missing in dx
    (
        "gpt/rms_norm",
        """
def rms_norm(params, x, eps=1e-6):
    rstd = 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    x_hat = x * rstd
    def backward(dy):
        slope = (dy * x_hat).mean(axis=-1, keepdims=True)
        return rstd * (dy - x_hat * slope), {"gain": (dy * x_hat).sum(axis=(0, 1))}
    return x_hat * params["gain"], backward
""",
        "the gain is missing in dx",
    ),
    # the gradient of the gain is summed over the batch alone
    (
        "gpt/rms_norm",
        """
def rms_norm(params, x, eps=1e-6):
    rstd = 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    x_hat = x * rstd
    def backward(dy):
        dx_hat = dy * params["gain"]
        slope = (dx_hat * x_hat).mean(axis=-1, keepdims=True)
        return rstd * (dx_hat - x_hat * slope), {"gain": (dy * x_hat).sum(axis=0)}
    return x_hat * params["gain"], backward
""",
        "axis=(0, 1)",
    ),
    # sigmoid in place of silu
    (
        "gpt/feed_forward",
        """
def feed_forward(params, x):
    ab, hidden_backward = linear(params["hidden"], x)
    a, b = np.split(ab, 2, axis=-1)
    s = 1 / (1 + np.exp(-a))
    y, out_backward = linear(params["out"], s * b)
    def backward(dy):
        dh, out_grads = out_backward(dy)
        da, db = dh * b * s * (1 - s), dh * s
        dx, hidden_grads = hidden_backward(np.concatenate([da, db], axis=-1))
        return dx, {"hidden": hidden_grads, "out": out_grads}
    return y, backward
""",
        "this is the sigmoid of a",
    ),
    # the halves are exchanged: silu of b
    (
        "gpt/feed_forward",
        """
def feed_forward(params, x):
    ab, hidden_backward = linear(params["hidden"], x)
    b, a = np.split(ab, 2, axis=-1)
    s = 1 / (1 + np.exp(-a))
    y, out_backward = linear(params["out"], a * s * b)
    def backward(dy):
        dh, out_grads = out_backward(dy)
        da, db = dh * b * s * (1 + a * (1 - s)), dh * a * s
        dx, hidden_grads = hidden_backward(np.concatenate([db, da], axis=-1))
        return dx, {"hidden": hidden_grads, "out": out_grads}
    return y, backward
""",
        "the halves are exchanged",
    ),
    # the slope of the sigmoid in place of that of silu
    (
        "gpt/feed_forward",
        """
def feed_forward(params, x):
    ab, hidden_backward = linear(params["hidden"], x)
    a, b = np.split(ab, 2, axis=-1)
    s = 1 / (1 + np.exp(-a))
    y, out_backward = linear(params["out"], a * s * b)
    def backward(dy):
        dh, out_grads = out_backward(dy)
        da = dh * b * s * (1 - s)
        db = dh * a * s
        dx, hidden_grads = hidden_backward(np.concatenate([da, db], axis=-1))
        return dx, {"hidden": hidden_grads, "out": out_grads}
    return y, backward
""",
        "the slope of the sigmoid alone",
    ),
    # da and db are put together in the other order
    (
        "gpt/feed_forward",
        """
def feed_forward(params, x):
    ab, hidden_backward = linear(params["hidden"], x)
    a, b = np.split(ab, 2, axis=-1)
    s = 1 / (1 + np.exp(-a))
    y, out_backward = linear(params["out"], a * s * b)
    def backward(dy):
        dh, out_grads = out_backward(dy)
        da, db = dh * b * s * (1 + a * (1 - s)), dh * a * s
        dx, hidden_grads = hidden_backward(np.concatenate([db, da], axis=-1))
        return dx, {"hidden": hidden_grads, "out": out_grads}
    return y, backward
""",
        "da first",
    ),
    # neighbours are a pair, not i and i + K/2
    (
        "gpt/rotary",
        """
def rotary(x, base=10000.0):
    T, K = x.shape[-2:]
    angles = np.arange(T)[:, None] * base ** (-2 * np.arange(K // 2) / K)
    cos, sin = np.cos(angles), np.sin(angles)
    def turned(x, sin):
        a, b = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2] = a * cos - b * sin
        out[..., 1::2] = a * sin + b * cos
        return out
    return turned(x, sin), lambda dy: turned(dy, -sin)
""",
        "not two neighbours",
    ),
    # turned the other way round
    (
        "gpt/rotary",
        """
def rotary(x, base=10000.0):
    T, K = x.shape[-2:]
    angles = np.arange(T)[:, None] * base ** (-2 * np.arange(K // 2) / K)
    cos, sin = np.cos(angles), np.sin(angles)
    def turned(x, sin):
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos + b * sin, b * cos - a * sin], axis=-1)
    return turned(x, sin), lambda dy: turned(dy, -sin)
""",
        "in the other direction",
    ),
    # the backward pass turns by the same angle again
    (
        "gpt/rotary",
        """
def rotary(x, base=10000.0):
    T, K = x.shape[-2:]
    angles = np.arange(T)[:, None] * base ** (-2 * np.arange(K // 2) / K)
    cos, sin = np.cos(angles), np.sin(angles)
    def turn(x):
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    return turn(x), turn
""",
        "by the same angle again",
    ),
    # the exponent is -i/K, not -2i/K
    (
        "gpt/rotary",
        """
def rotary(x, base=10000.0):
    T, K = x.shape[-2:]
    angles = np.arange(T)[:, None] * base ** (-np.arange(K // 2) / K)
    cos, sin = np.cos(angles), np.sin(angles)
    def turned(x, sin):
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    return turned(x, sin), lambda dy: turned(dy, -sin)
""",
        "the factor 2 is missing",
    ),
    # the factor 1/√K is missing
    (
        "gpt/attention",
        """
def attention(q, k, v, keep_mask):
    weights = softmax(np.where(keep_mask, q @ k.swapaxes(-1, -2), -np.inf))
    def backward(dout):
        raise NotImplementedError
    return weights @ v, backward
""",
        "the factor 1/√K is missing",
    ),
    # what is forbidden has the score 0
    (
        "gpt/attention",
        """
def attention(q, k, v, keep_mask):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = softmax(scores * keep_mask)
    def backward(dout):
        raise NotImplementedError
    return weights @ v, backward
""",
        "a forbidden score is 0",
    ),
    # each weight as if it depended on its own score alone
    (
        "gpt/attention_backward",
        """
def attention(q, k, v, keep_mask):
    scale = q.shape[-1] ** -0.5
    weights = softmax(np.where(keep_mask, scale * q @ k.swapaxes(-1, -2), -np.inf))
    def backward(dout):
        dweights = dout @ v.swapaxes(-1, -2)
        dv = weights.swapaxes(-1, -2) @ dout
        ds = dweights * weights * (1 - weights)
        return ds @ k * scale, ds.swapaxes(-1, -2) @ q * scale, dv
    return weights @ v, backward
""",
        "with respect to its own score",
    ),
    # the values are turned, too
    (
        "gpt/self_attention",
        """
def self_attention(params, x, n_heads):
    qkv, qkv_backward = linear(params["qkv"], x)
    q, k, v = (split_heads(part, n_heads) for part in np.split(qkv, 3, axis=-1))
    (q, q_backward), (k, k_backward), (v, v_backward) = rotary(q), rotary(k), rotary(v)
    heads, attention_backward = attention(q, k, v, np.tri(x.shape[1], dtype=bool))
    y, out_backward = linear(params["out"], merge_heads(heads))
    def backward(dy):
        dheads, out_grads = out_backward(dy)
        dq, dk, dv = attention_backward(split_heads(dheads, n_heads))
        dqkv = [merge_heads(part) for part in (q_backward(dq), k_backward(dk), v_backward(dv))]
        dx, qkv_grads = qkv_backward(np.concatenate(dqkv, axis=-1))
        return dx, {"qkv": qkv_grads, "out": out_grads}
    return y, backward
""",
        "v is turned, too",
    ),
    # no causal mask
    (
        "gpt/self_attention",
        """
def self_attention(params, x, n_heads):
    qkv, qkv_backward = linear(params["qkv"], x)
    q, k, v = (split_heads(part, n_heads) for part in np.split(qkv, 3, axis=-1))
    (q, q_backward), (k, k_backward) = rotary(q), rotary(k)
    T = x.shape[1]
    heads, attention_backward = attention(q, k, v, np.ones((T, T), dtype=bool))
    y, out_backward = linear(params["out"], merge_heads(heads))
    def backward(dy):
        dheads, out_grads = out_backward(dy)
        dq, dk, dv = attention_backward(split_heads(dheads, n_heads))
        dqkv = [merge_heads(part) for part in (q_backward(dq), k_backward(dk), dv)]
        dx, qkv_grads = qkv_backward(np.concatenate(dqkv, axis=-1))
        return dx, {"qkv": qkv_grads, "out": out_grads}
    return y, backward
""",
        "no causal mask",
    ),
    # dq and dk are not turned back
    (
        "gpt/self_attention",
        """
def self_attention(params, x, n_heads):
    qkv, qkv_backward = linear(params["qkv"], x)
    q, k, v = (split_heads(part, n_heads) for part in np.split(qkv, 3, axis=-1))
    q, _ = rotary(q)
    k, _ = rotary(k)
    heads, attention_backward = attention(q, k, v, np.tri(x.shape[1], dtype=bool))
    y, out_backward = linear(params["out"], merge_heads(heads))
    def backward(dy):
        dheads, out_grads = out_backward(dy)
        dqkv = [merge_heads(part) for part in attention_backward(split_heads(dheads, n_heads))]
        dx, qkv_grads = qkv_backward(np.concatenate(dqkv, axis=-1))
        return dx, {"qkv": qkv_grads, "out": out_grads}
    return y, backward
""",
        "turn them back",
    ),
    # the sum has the normalised input, not the input
    (
        "gpt/decoder_layer",
        """
def decoder_layer(params, x0, n_heads):
    h0, norm1 = rms_norm(params["attention_norm"], x0)
    att, attb = self_attention(params["attention"], h0, n_heads)
    x1 = h0 + att
    h1, norm2 = rms_norm(params["feed_forward_norm"], x1)
    fed, feedb = feed_forward(params["feed_forward"], h1)
    x2 = h1 + fed
    def backward(dy):
        dh1, g_feed = feedb(dy)
        dx1, g_norm2 = norm2(dh1 + dy)
        dh0, g_att = attb(dx1)
        dx0, g_norm1 = norm1(dh0 + dx1)
        grads = {"attention": g_att, "attention_norm": g_norm1}
        return dx0, {**grads, "feed_forward": g_feed, "feed_forward_norm": g_norm2}
    return x2, backward
""",
        "not to the normalised input",
    ),
    # what goes past the sublayers is missing in the gradient
    (
        "gpt/decoder_layer",
        """
def decoder_layer(params, x0, n_heads):
    h0, norm1 = rms_norm(params["attention_norm"], x0)
    att, attb = self_attention(params["attention"], h0, n_heads)
    x1 = x0 + att
    h1, norm2 = rms_norm(params["feed_forward_norm"], x1)
    fed, feedb = feed_forward(params["feed_forward"], h1)
    x2 = x1 + fed
    def backward(dy):
        dh1, g_feed = feedb(dy)
        dx1, g_norm2 = norm2(dh1)
        dh0, g_att = attb(dx1)
        dx0, g_norm1 = norm1(dh0)
        grads = {"attention": g_att, "attention_norm": g_norm1}
        return dx0, {**grads, "feed_forward": g_feed, "feed_forward_norm": g_norm2}
    return x2, backward
""",
        "what goes past the two sublayers",
    ),
    # the last normalisation is missing
    (
        "gpt/gpt",
        """
def gpt(params, ids, n_heads):
    x, embed_backward = embed(params["embedding"], ids)
    names = [name for name in params["layers"] if name != "norm"]
    backs = {}
    for name in names:
        x, backs[name] = decoder_layer(params["layers"][name], x, n_heads)
    logits, output_backward = linear(params["output"], x)
    def backward(dlogits):
        grads = {"layers": {"norm": {"gain": np.zeros_like(params["layers"]["norm"]["gain"])}}}
        dx, grads["output"] = output_backward(dlogits)
        for name in reversed(names):
            dx, grads["layers"][name] = backs[name](dx)
        grads["embedding"] = embed_backward(dx)
        return grads
    return logits, backward
""",
        "the last normalisation is missing",
    ),
    # the layers go back in the order of the forward pass
    (
        "gpt/gpt",
        """
def gpt(params, ids, n_heads):
    x, embed_backward = embed(params["embedding"], ids)
    names = [name for name in params["layers"] if name != "norm"]
    backs = {}
    for name in names:
        x, backs[name] = decoder_layer(params["layers"][name], x, n_heads)
    y, norm_backward = rms_norm(params["layers"]["norm"], x)
    logits, output_backward = linear(params["output"], y)
    def backward(dlogits):
        grads = {"layers": {}}
        dy, grads["output"] = output_backward(dlogits)
        dx, grads["layers"]["norm"] = norm_backward(dy)
        for name in names:
            dx, grads["layers"][name] = backs[name](dx)
        grads["embedding"] = embed_backward(dx)
        return grads
    return logits, backward
""",
        "in reverse order",
    ),
    # the gradient is not divided by the number of targets
    (
        "gpt/cross_entropy",
        """
def cross_entropy(logits, targets):
    B, T, V = logits.shape
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    loss = -np.take_along_axis(log_p, targets[..., None], axis=-1).mean()
    dlogits = np.exp(log_p)
    dlogits[np.arange(B)[:, None], np.arange(T), targets] -= 1
    return loss, dlogits
""",
        "not divided by the number of characters",
    ),
    # the logarithm of softmax overflows
    (
        "gpt/cross_entropy",
        """
def cross_entropy(logits, targets):
    B, T, V = logits.shape
    p = softmax(logits)
    loss = -np.log(p[np.arange(B)[:, None], np.arange(T), targets]).mean()
    return loss, (p - np.eye(V)[targets]) / (B * T)
""",
        "log(softmax)",
    ),
    # no bias correction
    (
        "gpt/adam_step",
        """
def adam_step(params, grads, means, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    for name, g in grads.items():
        if isinstance(g, dict):
            adam_step(params[name], g, means.setdefault(name, {}), step, lr, beta1, beta2, eps)
            continue
        m, v = means.get(name, (0.0, 0.0))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        means[name] = (m, v)
        params[name] -= lr * m / (np.sqrt(v) + eps)
""",
        "the bias correction is missing",
    ),
    # multiplied by the temperature
    (
        "gpt/write",
        """
def write(params, ids, n_heads, n_more, rng, temperature=0.8, context=64):
    for _ in range(n_more):
        logits, _ = gpt(params, ids[None, -context:], n_heads)
        p = softmax(logits[0, -1] * temperature)
        ids = np.append(ids, rng.choice(len(p), p=p))
    return ids
""",
        "divided by the temperature, not multiplied",
    ),
    # the most probable character in place of a drawn one
    (
        "gpt/write",
        """
def write(params, ids, n_heads, n_more, rng, temperature=0.8, context=64):
    for _ in range(n_more):
        logits, _ = gpt(params, ids[None, -context:], n_heads)
        p = softmax(logits[0, -1] / temperature)
        ids = np.append(ids, p.argmax())
    return ids
""",
        "the most probable character",
    ),
]
