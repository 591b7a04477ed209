"""Layers as closures: ``y, backward = layer(ops, params, x, ...)``, then ``dx, grads = backward(dy)``.

``ops`` is the module whose operations to use (``npformer.reference`` or a faster one); those that do several things
at once, as ``linear_dropout_residual``, are spelled out in ``npformer/reference/fused.py``. The forward
pass reads from top to bottom as in the paper's figure, the backward pass the same lines from bottom to top.
``grads`` has the keys of ``params``. Each name is assigned once: a closure sees the last value of a name.
"""

from npformer.reference.random import split_key


def layer_norm(ops, params, x):
    """Layer normalisation with a learned gain and bias; without a bias, root-mean-square normalisation.

    Parameters
    ----------
    ops : module
    params : {"gain": (D,), "bias": (D,)} or {"gain": (D,)}
    x : (..., D)

    Returns
    -------
    y : (..., D)
    backward : dy -> (dx, grads)
    """
    norm, norm_backward = ops.layer_norm, ops.layer_norm_backward
    if "bias" not in params:
        norm, norm_backward = ops.rms_norm, ops.rms_norm_backward
    y, *saved = norm(x, **params)

    def backward(dy):
        dx, *grads = norm_backward(dy, x, params["gain"], *saved)
        return dx, dict(zip(params, grads, strict=True))

    return y, backward


def linear(ops, params, x):
    """The linear map x W + b.

    Parameters
    ----------
    ops : module
    params : {"weight": (D_in, D_out), "bias": (D_out,)}
    x : (..., D_in)

    Returns
    -------
    y : (..., D_out)
    backward : dy -> (dx, grads)
    """
    weight, bias = params["weight"], params["bias"]
    y = ops.linear(x, weight, bias)

    def backward(dy):
        dx, dweight, dbias = ops.linear_backward(dy, x, weight, bias)
        return dx, {"weight": dweight, "bias": dbias}

    return y, backward


def multi_head_attention(
    ops,
    params,
    x,
    memory=None,
    keep_mask=None,
    *,
    n_heads,
    causal=False,
    residual=None,
    dropout_rate=0.0,
    inner_dropout_rate=None,
    key=None,
):
    """residual + dropout(concat(head_1 ... head_H) W_out + b_out), head_i = attention of the i-th projections (3.2.2).

    Parameters
    ----------
    ops : module
    params : nested dict
        {"qkv", "out"} for self-attention, {"q", "kv", "out"} for attention to a memory; each a
        {"weight": (D_in, D_out), "bias": (D_out,)}. Projections that read the same input stand side by side.
    x : (B, T, D)
        Where the queries come from, and without a memory the keys and values too.
    memory : (B, S, D), optional
        Where keys and values come from: the encoder's output.
    keep_mask : bool, broadcasts to (B, H, T, S), optional
        True = may attend.
    n_heads : int
    causal : bool
    residual : (B, T, D), optional
        Added to the output; its gradient is dy itself.
    dropout_rate, inner_dropout_rate, key
        Dropout on the output, and on the weights, where None means the same rate.

    Returns
    -------
    y : (B, T, D)
    backward
        dy -> (dx, grads), or dy -> (dx, dmemory, grads) with a memory.
    """
    weights_key, out_key = split_key(key, 2)
    weights_rate = dropout_rate if inner_dropout_rate is None else inner_dropout_rate
    options = {"causal": causal, "dropout_rate": weights_rate, "dropout_key": weights_key}
    w_out, b_out = params["out"]["weight"], params["out"]["bias"]

    if memory is None:
        qkv, project_backward = linear(ops, params["qkv"], x)
        heads, logsumexp = ops.self_attention(qkv, n_heads, keep_mask, **options)
    else:
        q, project_backward = linear(ops, params["q"], x)
        kv, project_memory_backward = linear(ops, params["kv"], memory)
        heads, logsumexp = ops.cross_attention(q, kv, n_heads, keep_mask, **options)
    y = ops.linear_dropout_residual(heads, w_out, b_out, residual, dropout_rate, out_key)

    def backward(dy):
        dheads, dw_out, db_out, _ = ops.linear_dropout_residual_backward(dy, heads, w_out, b_out, dropout_rate, out_key)
        saved = (heads, logsumexp, n_heads, keep_mask)
        out_grads = {"weight": dw_out, "bias": db_out}
        if memory is None:
            dqkv = ops.self_attention_backward(dheads, qkv, *saved, **options)
            dx, qkv_grads = project_backward(dqkv)
            return dx, {"qkv": qkv_grads, "out": out_grads}
        dq, dkv = ops.cross_attention_backward(dheads, q, kv, *saved, **options)
        dx, q_grads = project_backward(dq)
        dmemory, kv_grads = project_memory_backward(dkv)
        return dx, dmemory, {"q": q_grads, "kv": kv_grads, "out": out_grads}

    return y, backward


def feed_forward(
    ops, params, x, *, activation="relu", residual=None, dropout_rate=0.0, inner_dropout_rate=None, key=None
):
    """residual + dropout(dropout(activation(x W_1 + b_1)) W_2 + b_2), at each position alone (section 3.3).

    Parameters
    ----------
    ops : module
    params : {"hidden": {"weight": (D, F), "bias": (F,)}, "out": {"weight": (F, D), "bias": (D,)}}
    x : (..., D)
    activation : "relu", "gelu", "silu", or "swiglu" with hidden weights (D, 2F) and biases (2F,)
    residual : (..., D), optional
        Added to the output; its gradient is dy itself.
    dropout_rate, inner_dropout_rate, key
        Dropout on the output, and on the hidden layer, where None means the same rate.

    Returns
    -------
    y : (..., D)
    backward : dy -> (dx, grads)
    """
    hidden_key, out_key = split_key(key, 2)
    hidden_rate = dropout_rate if inner_dropout_rate is None else inner_dropout_rate
    w1, b1 = params["hidden"]["weight"], params["hidden"]["bias"]
    w2, b2 = params["out"]["weight"], params["out"]["bias"]

    hidden, before = ops.linear_activation_dropout(x, w1, b1, activation, hidden_rate, hidden_key)
    y = ops.linear_dropout_residual(hidden, w2, b2, residual, dropout_rate, out_key)

    def backward(dy):
        dhidden, dw2, db2, _ = ops.linear_dropout_residual_backward(dy, hidden, w2, b2, dropout_rate, out_key)
        dx, dw1, db1 = ops.linear_activation_dropout_backward(
            dhidden, x, w1, b1, before, activation, hidden_rate, hidden_key
        )
        return dx, {"hidden": {"weight": dw1, "bias": db1}, "out": {"weight": dw2, "bias": db2}}

    return y, backward


def residual_block(ops, norm_params, x, sublayer, norm):
    """A sublayer with its normalisation before it or after the sum.

    Pre-norm: x + sublayer(LN(x)): the sum itself is never normalised, gradients pass unhindered, and training
    needs little warm-up (Xiong et al. 2020). Post-norm: LN(x + sublayer(x)), as in the paper.

    Parameters
    ----------
    ops : module
    norm_params : {"gain": (D,), "bias": (D,)}
    x : (B, T, D)
    sublayer : callable
        ``sublayer(h, residual=x)`` returns the sum with the residual, and its backward.
    norm : "pre" or "post"

    Returns
    -------
    y : (B, T, D)
    backward
        dy -> (dx, everything else that the sublayer's backward returns, gradients of the norm).
    """
    if norm not in ("pre", "post"):
        raise ValueError(f"norm={norm!r}, expected 'pre' or 'post'")
    if norm == "pre":
        h, norm_backward = layer_norm(ops, norm_params, x)
        y, sublayer_backward = sublayer(h, residual=x)

        def backward(dy):
            dh, *rest = sublayer_backward(dy)
            dx, norm_grads = norm_backward(dh)
            dx += dy
            return dx, *rest, norm_grads

    else:
        total, sublayer_backward = sublayer(x, residual=x)
        y, norm_backward = layer_norm(ops, norm_params, total)

        def backward(dy):
            dtotal, norm_grads = norm_backward(dy)
            dx, *rest = sublayer_backward(dtotal)
            dx += dtotal
            return dx, *rest, norm_grads

    return y, backward


def encoder_layer(
    ops,
    params,
    x0,
    keep_mask=None,
    *,
    n_heads,
    norm="pre",
    activation="relu",
    dropout_rate=0.0,
    inner_dropout_rate=None,
    key=None,
):
    """Self-attention, then feed-forward (the paper's figure 1, left).

    Parameters
    ----------
    ops : module
    params : {"attention", "attention_norm", "feed_forward", "feed_forward_norm"}
    x0 : (B, S, D)
    keep_mask : bool, broadcasts to (B, H, S, S), optional
    n_heads, norm, activation, dropout_rate, inner_dropout_rate, key
        As above.

    Returns
    -------
    x2 : (B, S, D)
    backward : dx2 -> (dx0, grads)
    """
    attention_key, feed_forward_key = split_key(key, 2)
    rates = {"dropout_rate": dropout_rate, "inner_dropout_rate": inner_dropout_rate}

    def attend(h, residual):
        options = {"n_heads": n_heads, "residual": residual, "key": attention_key, **rates}
        return multi_head_attention(ops, params["attention"], h, None, keep_mask, **options)

    def feed(h, residual):
        options = {"residual": residual, "key": feed_forward_key, **rates}
        return feed_forward(ops, params["feed_forward"], h, activation=activation, **options)

    x1, attend_backward = residual_block(ops, params["attention_norm"], x0, attend, norm)
    x2, feed_backward = residual_block(ops, params["feed_forward_norm"], x1, feed, norm)

    def backward(dx2):
        dx1, feed_forward_grads, feed_forward_norm_grads = feed_backward(dx2)
        dx0, attention_grads, attention_norm_grads = attend_backward(dx1)
        return dx0, {
            "attention": attention_grads,
            "attention_norm": attention_norm_grads,
            "feed_forward": feed_forward_grads,
            "feed_forward_norm": feed_forward_norm_grads,
        }

    return x2, backward


def decoder_layer(
    ops,
    params,
    x0,
    memory,
    keep_mask=None,
    memory_keep_mask=None,
    *,
    n_heads,
    norm="pre",
    activation="relu",
    dropout_rate=0.0,
    inner_dropout_rate=None,
    key=None,
):
    """Causal self-attention, attention to the encoder's output, then feed-forward (figure 1, right).

    Parameters
    ----------
    ops : module
    params : the encoder layer's, and {"memory_attention", "memory_attention_norm"}
    x0 : (B, T, D)
    memory : (B, S, D)
        The encoder's output.
    keep_mask : bool, broadcasts to (B, H, T, T), optional
        Besides the causal mask, which is always there.
    memory_keep_mask : bool, broadcasts to (B, H, T, S), optional
    n_heads, norm, activation, dropout_rate, inner_dropout_rate, key
        As above.

    Returns
    -------
    x3 : (B, T, D)
    backward : dx3 -> (dx0, dmemory, grads)
    """
    attention_key, memory_key, feed_forward_key = split_key(key, 3)
    rates = {"dropout_rate": dropout_rate, "inner_dropout_rate": inner_dropout_rate}

    def attend(h, residual):
        options = {"n_heads": n_heads, "residual": residual, "key": attention_key, **rates}
        return multi_head_attention(ops, params["attention"], h, None, keep_mask, causal=True, **options)

    def attend_memory(h, residual):
        options = {"n_heads": n_heads, "residual": residual, "key": memory_key, **rates}
        return multi_head_attention(ops, params["memory_attention"], h, memory, memory_keep_mask, **options)

    def feed(h, residual):
        options = {"residual": residual, "key": feed_forward_key, **rates}
        return feed_forward(ops, params["feed_forward"], h, activation=activation, **options)

    x1, attend_backward = residual_block(ops, params["attention_norm"], x0, attend, norm)
    x2, attend_memory_backward = residual_block(ops, params["memory_attention_norm"], x1, attend_memory, norm)
    x3, feed_backward = residual_block(ops, params["feed_forward_norm"], x2, feed, norm)

    def backward(dx3):
        dx2, feed_forward_grads, feed_forward_norm_grads = feed_backward(dx3)
        dx1, dmemory, memory_attention_grads, memory_attention_norm_grads = attend_memory_backward(dx2)
        dx0, attention_grads, attention_norm_grads = attend_backward(dx1)
        return (
            dx0,
            dmemory,
            {
                "attention": attention_grads,
                "attention_norm": attention_norm_grads,
                "memory_attention": memory_attention_grads,
                "memory_attention_norm": memory_attention_norm_grads,
                "feed_forward": feed_forward_grads,
                "feed_forward_norm": feed_forward_norm_grads,
            },
        )

    return x3, backward
