"""Attention, and multi-head attention with its projections (Vaswani et al. 2017, section 3.2)."""

from typing import Any

import numpy as np

from npformer.arrays import Array
from npformer.layers.cache import KeyValueCache, check_no_mask
from npformer.layers.normalisation import rms_norm
from npformer.layers.projection import project, with_output
from npformer.layers.types import Backward, Params, part
from npformer.operations.options import settings_from
from npformer.operations.settings import AttentionOptions, AttentionSettings
from npformer.reference import Ops
from npformer.reference.math.masks import window_mask


def attention(
    ops: Ops,
    q: Array,
    k: Array,
    v: Array,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    dropout_key: int | None = None,
    **options: Any,
) -> tuple[Array, Backward]:
    """softmax(scale · q kᵀ + bias) v; ``backward`` uses the scale and the dropout of the forward pass.

    Parameters
    ----------
    ops : Ops
    q : (..., T, K)
    k : (..., S, K)
    v : (..., S, Kv)
    keep_mask : bool, broadcasts to (..., T, S), optional
        True = may attend.
    bias : broadcasts to (..., T, S), optional
        Is added to the scores.
    dropout_key : int, optional
        Of the dropout on the weights.
    options
        Those of ``AttentionOptions``, such as ``causal=True``.

    Returns
    -------
    out : (..., T, Kv)
    backward : dout -> (dq, dk, dv), and dbias if there is a bias

    Examples
    --------
    Learn queries that select the second value, by gradient descent:

    >>> from npformer import layers, reference
    >>> q, k, v = np.zeros((1, 2)), np.eye(2), np.array([[0.0], [1.0]])
    >>> for _ in range(200):
    ...     out, backward = layers.attention(reference.ops, q, k, v)
    ...     dq, dk, dv = backward(out - 1)
    ...     q = q - 2 * dq
    >>> bool(out.item() > 0.95)
    True
    """
    settings = settings_from(AttentionOptions, options, "attention", others=["bias", "dropout_key"])
    out, weights = ops.attention(q, k, v, keep_mask, bias=bias, **settings.keywords(), dropout_key=dropout_key)

    def backward(dout):
        others = settings.keywords("causal")  # a masked key has weight 0
        return ops.attention_backward(dout, q, k, v, weights, bias=bias, **others, dropout_key=dropout_key)

    return out, backward


def self_attention(
    ops: Ops,
    params: Params,
    x: Array,
    settings: AttentionSettings,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    dropout_key: int | None = None,
) -> tuple[Array, Backward]:
    """concat(head_1 … head_H) W_out + b_out, where each head attends from x to x.

    Parameters
    ----------
    ops : Ops
    params : {"q", "k", "v", "out"} or {"qkv", "out"}
        Each {"weight", "bias"}, with weights (D, H*K), (D, G*K), (D, G*K) and (H*K, D), where G = H if ``n_kv_heads``
        is not given; "qkv" holds three maps side by side, (D, (H+2*G)*K), which is faster. With ``qk_norm_eps`` also
        "q_norm" and "k_norm", each {"gain": (K,)}.
    x : (B, T, D)
    settings : AttentionSettings
    keep_mask : bool, broadcasts to (B, H, T, T), optional
        True = may attend.
    bias : broadcasts to (B, H, T, T), optional
        Is added to the scores.
    dropout_key : int, optional
        Of the dropout on the attention weights.

    Returns
    -------
    y : (B, T, D)
    backward : dy -> (dx, grads), or (dx, dbias, grads) if there is a bias

    Examples
    --------
    Learn to output the first vector of each sequence at every position, by gradient descent:

    >>> from npformer import layers, reference, tree
    >>> rng = np.random.default_rng(0)
    >>> params = {
    ...     name: {"weight": rng.normal(size=(4, 4)) / 2, "bias": np.zeros(4)} for name in ("q", "k", "v", "out")
    ... }
    >>> x = rng.normal(size=(8, 3, 4))
    >>> x[:, 0, 0] = 3  # marks the first position
    >>> losses = []
    >>> for _ in range(300):
    ...     y, backward = layers.self_attention(reference.ops, params, x, layers.AttentionSettings(2))
    ...     error = y - x[:, :1]
    ...     losses.append(float((error**2).mean()))
    ...     dx, grads = backward(2 * error / error.size)
    ...     params = tree.map_leaves(lambda p, g: p - 0.3 * g, params, grads)
    >>> losses[-1] < 0.1 * losses[0]
    True
    """
    options: dict[str, Any] = {"bias": bias, "dropout_key": dropout_key}
    heads, heads_backward = self_attention_heads(ops, params, x, settings, keep_mask, **options)
    return with_output(ops, params, heads, heads_backward)


def cross_attention(
    ops: Ops,
    params: Params,
    x: Array,
    memory: Array,
    settings: AttentionSettings,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    dropout_key: int | None = None,
) -> tuple[Array, Backward]:
    """concat(head_1 … head_H) W_out + b_out, where each head attends from x to a memory.

    Parameters
    ----------
    ops : Ops
    params : {"q", "k", "v", "out"} or {"q", "kv", "out"}
        As of ``self_attention``; "kv" holds two maps side by side, (D, 2*G*K), which is faster.
    x : (B, T, D)
        The input of the queries.
    memory : (B, S, D)
        The input of the keys and values, such as the output of an encoder.
    settings : AttentionSettings
    keep_mask : bool, broadcasts to (B, H, T, S), optional
        True = may attend.
    bias : broadcasts to (B, H, T, S), optional
        Is added to the scores.
    dropout_key : int, optional
        Of the dropout on the attention weights.

    Returns
    -------
    y : (B, T, D)
    backward : dy -> (dx, dmemory, grads), or (dx, dmemory, dbias, grads) if there is a bias

    Examples
    --------
    >>> from npformer import layers, reference
    >>> params = {name: {"weight": np.eye(4), "bias": np.zeros(4)} for name in ("q", "k", "v", "out")}
    >>> x, memory = np.ones((1, 2, 4)), np.ones((1, 5, 4))
    >>> y, backward = layers.cross_attention(reference.ops, params, x, memory, layers.AttentionSettings(2))
    >>> dx, dmemory, grads = backward(np.ones_like(y))
    >>> dx.shape, dmemory.shape, list(grads)
    ((1, 2, 4), (1, 5, 4), ['q', 'k', 'v', 'out'])
    """
    options: dict[str, Any] = {"bias": bias, "dropout_key": dropout_key}
    heads, heads_backward = cross_attention_heads(ops, params, x, memory, settings, keep_mask, **options)
    return with_output(ops, params, heads, heads_backward)


def self_attention_heads(
    ops: Ops,
    params: Params,
    x: Array,
    settings: AttentionSettings,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    dropout_key: int | None = None,
    cache: KeyValueCache | None = None,
) -> tuple[Array, Backward | None]:
    """concat(head_1 … head_H): ``self_attention`` without the output projection.

    With a ``cache`` of the keys and values of the earlier positions, x (R, D) is only the newest position of each of R
    rows, whose keys and values are written into the cache. A mask belongs into the cache, a bias is that of the newest
    position (broadcasts to (R, H, 1, S), of which a window takes the last), there is no dropout, and ``backward`` is
    None.
    """
    if cache is not None and cache.rotary != settings.rotary:
        both = f"the settings have rotary={settings.rotary}, the keys of the cache rotary={cache.rotary}"
        expected = "expected the same, as of KeyValueCache(kv, at, rotary=settings.rotary)"
        raise ValueError(f"{both}: {expected}")
    qkv, project_backward = project(ops, params, x, ("q", "k", "v"), settings.parts)
    if x.ndim != (3 if cache is None else 2):
        raise ValueError(f"x has shape {x.shape}, expected {'(B, T, D)' if cache is None else '(R, D) with a cache'}")
    if settings.qk_norm_eps is not None:
        qkv, norm_backward = _normalise_heads(ops, params, qkv, settings)
    if settings.rotary is not None:
        positions = np.arange(x.shape[1], like=x) if cache is None else cache.newest_positions
        n_turned, n_plain = sum(settings.parts[:2]), settings.parts[2]  # values are not turned
        turned = positions, n_turned, n_plain
        qkv = ops.rotary(qkv, *turned, **vars(settings.rotary))
    if cache is not None:
        check_no_mask(keep_mask)
        return _newest_heads(ops, qkv, settings, cache, bias), None
    if settings.window is not None:
        keep_mask = window_mask(x.shape[1], settings.window, keep_mask, like=x)
    attention = settings.of_operation
    options: dict[str, Any] = {"bias": bias, "dropout_key": dropout_key}
    heads, peak, total = ops.self_attention(qkv, attention, keep_mask, **options)

    def backward(dheads):
        saved = qkv, heads, peak, total, attention, keep_mask
        gradients = ops.self_attention_backward(dheads, *saved, **options)
        dqkv, *dbias = (gradients,) if bias is None else gradients
        if settings.rotary is not None:
            dqkv = ops.rotary_backward(dqkv, *turned, **vars(settings.rotary))
        norm_grads = {}
        if settings.qk_norm_eps is not None:
            dqkv, norm_grads = norm_backward(dqkv)
        dx, grads = project_backward(dqkv)
        return dx, *dbias, grads | norm_grads

    return heads, backward


def _normalise_heads(ops, params, qkv, settings):
    """The packed heads, of which those of queries and keys are normalised, and the backward pass."""
    n_heads, n_kv_heads, n_values = settings.parts
    heads = qkv.reshape(*qkv.shape[:-1], n_heads + n_kv_heads + n_values, -1)
    q, k, v = np.split(heads, [n_heads, n_heads + n_kv_heads], axis=-2)
    q, q_backward = rms_norm(ops, part(params, "q_norm"), q, settings.qk_norm_eps)
    k, k_backward = rms_norm(ops, part(params, "k_norm"), k, settings.qk_norm_eps)

    def backward(dqkv):
        dq, dk, dv = np.split(dqkv.reshape(heads.shape), [n_heads, n_heads + n_kv_heads], axis=-2)
        dq, q_grads = q_backward(dq)
        dk, k_grads = k_backward(dk)
        dheads = np.concatenate([dq, dk, dv], axis=-2)
        return dheads.reshape(qkv.shape), {"q_norm": q_grads, "k_norm": k_grads}

    return np.concatenate([q, k, v], axis=-2).reshape(qkv.shape), backward


def _newest_heads(ops, qkv, settings, cache, bias):
    """The heads of the newest positions, whose keys and values go into the cache."""
    D = qkv.shape[-1] // sum(settings.parts) * settings.n_heads
    cache.append(qkv[:, D:])
    if settings.window is not None:
        cache = cache.latest(settings.window)
        bias = None if bias is None else bias[..., -settings.window :]
    return cache.attend(ops, qkv[:, :D], settings.of_operation, bias)


def cross_attention_heads(
    ops: Ops,
    params: Params,
    x: Array,
    memory: Array | KeyValueCache,
    settings: AttentionSettings,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    dropout_key: int | None = None,
) -> tuple[Array, Backward | None]:
    """concat(head_1 … head_H): ``cross_attention`` without the output projection.

    ``memory`` may be a ``KeyValueCache`` of its keys and values; x is then (R, D), and ``backward`` is None.
    """
    q, q_backward = project(ops, params, x, ("q",))
    if isinstance(memory, KeyValueCache):
        check_no_mask(keep_mask)
        return memory.attend(ops, q, settings, bias), None
    kv, kv_backward = project(ops, params, memory, ("k", "v"))
    options: dict[str, Any] = {"bias": bias, "dropout_key": dropout_key}
    heads, peak, total = ops.cross_attention(q, kv, settings, keep_mask, **options)

    def backward(dheads):
        saved = q, kv, heads, peak, total, settings, keep_mask
        dq, dkv, *dbias = ops.cross_attention_backward(dheads, *saved, **options)
        dx, q_grads = q_backward(dq)
        dmemory, kv_grads = kv_backward(dkv)
        return dx, dmemory, *dbias, {**q_grads, **kv_grads}

    return heads, backward
