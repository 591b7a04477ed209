"""The training step of ``npformer.Transformer`` (pre-norm, ReLU) in jax.numpy, compiled as a whole
by ``jax.jit``.

The parameters are npformer's nested dict, so both start with the same numbers. There is no padding
mask, since the benchmark has no padding.
"""

from functools import partial

import jax
import jax.numpy as jnp

import npformer as nf


def forward(params, src, tgt_in, key, *, n_heads, rate):
    """(B, S) and (B, T) ids -> (B, T, V) logits."""
    source_key, target_key, encoder_key, decoder_key = jax.random.split(key, 4)
    x = embed(params["source_embedding"], src, source_key, rate)
    memory = layers(params["encoder"], x, None, encoder_key, n_heads, rate)
    y = embed(params["target_embedding"], tgt_in, target_key, rate)
    return linear(
        params["output"], layers(params["decoder"], y, memory, decoder_key, n_heads, rate)
    )


def layers(params, x, memory, key, n_heads, rate):
    """The layers of the encoder, or, with a memory, of the decoder, and the norm after them."""
    *params, norm = params.values()
    for of_layer, layer_key in zip(params, jax.random.split(key, len(params)), strict=True):
        x = layer(of_layer, x, memory, layer_key, n_heads, rate)
    return layer_norm(norm, x)


def layer(params, x, memory, key, n_heads, rate):
    """Self-attention, which in the decoder is causal and followed by attention to the memory, then
    feed-forward.
    """
    keys = jax.random.split(key, 6)
    h = layer_norm(params["attention_norm"], x)
    of_self = attention(
        params["attention"], h, h, keys[0], n_heads, rate, causal=memory is not None
    )
    x = x + dropout(of_self, keys[1], rate)
    if memory is not None:
        h = layer_norm(params["memory_attention_norm"], x)
        x = x + dropout(
            attention(params["memory_attention"], h, memory, keys[2], n_heads, rate), keys[3], rate
        )
    h = layer_norm(params["feed_forward_norm"], x)
    return x + dropout(feed_forward(params["feed_forward"], h, keys[4], rate), keys[5], rate)


def attention(params, x, memory, key, n_heads, rate, causal=False):
    """Multi-head attention; projections that read the same input are one product."""
    if "qkv" in params:
        q, k, v = heads(linear(params["qkv"], x), 3, n_heads)
    else:
        (q,) = heads(linear(params["q"], x), 1, n_heads)
        k, v = heads(linear(params["kv"], memory), 2, n_heads)
    scores = jnp.einsum("bhtk,bhsk->bhts", q * q.shape[-1] ** -0.5, k)
    if causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
    weights = dropout(jax.nn.softmax(scores), key, rate)
    return linear(params["out"], jnp.einsum("bhts,bhsk->bthk", weights, v).reshape(x.shape))


def heads(x, n_parts, n_heads):
    """(B, T, n_parts D) -> (n_parts, B, H, T, K)."""
    B, T, _ = x.shape
    return x.reshape(B, T, n_parts, n_heads, -1).transpose(2, 0, 3, 1, 4)


def feed_forward(params, x, key, rate):
    """Two layers with ReLU and dropout in between."""
    return linear(params["out"], dropout(jax.nn.relu(linear(params["hidden"], x)), key, rate))


def linear(params, x):
    """X W + b."""
    return x @ params["weight"] + params["bias"]


def layer_norm(params, x):
    """Mean 0 and variance 1 of each row, then gain and bias."""
    centred = x - x.mean(axis=-1, keepdims=True)
    rstd = jax.lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return centred * rstd * params["gain"] + params["bias"]


def embed(table, ids, key, rate):
    """√D times the rows of the table, plus the sinusoidal encoding."""
    D = table.shape[1]
    positions = nf.sinusoidal_encoding(ids.shape[1], D, dtype="float32")
    return dropout(table[ids] * D**0.5 + positions, key, rate)


def dropout(x, key, rate):
    """Zero with probability ``rate``, else divided by 1 - rate."""
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def smoothed_loss(params, src, tgt_in, tgt_out, key, *, n_heads, rate, label_smoothing):
    """Mean cross-entropy per token against targets mixed with ε/V everywhere."""
    log_p = jax.nn.log_softmax(forward(params, src, tgt_in, key, n_heads=n_heads, rate=rate))
    at_target = jnp.take_along_axis(log_p, tgt_out[..., None], axis=-1)[..., 0]
    return -((1 - label_smoothing) * at_target + label_smoothing * log_p.mean(axis=-1)).mean()


def adam(params, grads, m, v, step, lr, beta1=0.9, beta2=0.98, eps=1e-9):
    """One step of Adam on every array."""
    m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, m, grads)
    v = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, v, grads)
    m_scale = 1 / (1 - beta1**step)
    v_scale = 1 / (1 - beta2**step)
    params = jax.tree.map(
        lambda p, m, v: p - lr * m * m_scale / (jnp.sqrt(v * v_scale) + eps), params, m, v
    )
    return params, m, v


def training_step(model, src, tgt, lr, label_smoothing):
    """``step()`` -> loss, of an ``npformer.Transformer``'s twin on the CPU; buffers are donated to
    the next step.
    """
    jax.config.update("jax_platforms", "cpu")
    loss_of = partial(
        smoothed_loss, n_heads=model.n_heads, rate=model.dropout, label_smoothing=label_smoothing
    )

    @partial(jax.jit, donate_argnums=0)
    def update(state, key, src, tgt_in, tgt_out):
        params, m, v, n = state
        key = jax.random.fold_in(key, n)
        loss, grads = jax.value_and_grad(loss_of)(params, src, tgt_in, tgt_out, key)
        return loss, (*adam(params, grads, m, v, n + 1, lr), n + 1)

    params = jax.tree.map(jnp.asarray, model.init(seed=0))
    state = (
        params,
        jax.tree.map(jnp.zeros_like, params),
        jax.tree.map(jnp.zeros_like, params),
        jnp.int32(0),
    )
    key = jax.random.key(0)
    batch = tuple(jnp.asarray(ids, jnp.int32) for ids in (src, tgt[:, :-1], tgt[:, 1:]))

    def step():
        nonlocal state
        loss, state = update(state, key, *batch)
        return float(loss)

    return step
