"""Attention, and multi-head attention with its projections (Vaswani et al. 2017, section 3.2).

A model calls ``self_attention_heads`` and ``cross_attention_heads``: the output projection is then
part of ``add_and_norm``. The layers above them are for those who use a layer alone.
"""

from typing import Any

import numpy as np

from npformer.arrays import Array
from npformer.errors import UserError
from npformer.layers.normalisation import rms_norm
from npformer.layers.projection import linear, project
from npformer.layers.types import Backward, Params
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
    """softmax(scale · q kᵀ + bias) v; ``backward`` has the same scale and dropout.

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
    others = ["bias", "dropout_key"]
    settings = settings_from(AttentionOptions, options, "attention", others=others)
    out, weights = ops.attention(
        q, k, v, keep_mask, bias=bias, dropout_key=dropout_key, **settings.keywords
    )

    def backward(dout):
        # Neither a mask nor ``causal`` is asked for: a masked key has weight 0.
        options = settings.keywords_of_backward
        return ops.attention_backward(
            dout, q, k, v, weights, bias=bias, dropout_key=dropout_key, **options
        )

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
        Each {"weight", "bias"}, with weights (D, H*K), (D, G*K), (D, G*K) and (H*K, D), where G = H
        if ``n_kv_heads`` is not given; "qkv" holds three maps side by side, (D, (H+2*G)*K), which
        is faster. With ``qk_norm_eps`` also "q_norm" and "k_norm", each {"gain": (K,)}.
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
    >>> names = "q", "k", "v", "out"
    >>> params = {x: {"weight": rng.normal(size=(4, 4)) / 2, "bias": np.zeros(4)} for x in names}
    >>> settings = layers.AttentionSettings(2)
    >>> x = rng.normal(size=(8, 3, 4))
    >>> x[:, 0, 0] = 3  # marks the first position
    >>> losses = []
    >>> for _ in range(300):
    ...     y, backward = layers.self_attention(reference.ops, params, x, settings)
    ...     error = y - x[:, :1]
    ...     losses.append(float((error**2).mean()))
    ...     dx, grads = backward(2 * error / error.size)
    ...     params = tree.map_leaves(lambda p, g: p - 0.3 * g, params, grads)
    >>> losses[-1] < 0.1 * losses[0]
    True
    """
    heads, heads_backward = self_attention_heads(
        ops, params, x, settings, keep_mask, bias=bias, dropout_key=dropout_key
    )
    y, out_backward = linear(ops, params["out"], heads)

    def backward(dy):
        dheads, out_grads = out_backward(dy)
        dx, *dbias, grads = heads_backward(dheads)
        return dx, *dbias, grads | {"out": out_grads}

    return y, backward


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
    >>> names = "q", "k", "v", "out"
    >>> params = {name: {"weight": np.eye(4), "bias": np.zeros(4)} for name in names}
    >>> x, memory = np.ones((1, 2, 4)), np.ones((1, 5, 4))
    >>> settings = layers.AttentionSettings(2)
    >>> y, backward = layers.cross_attention(reference.ops, params, x, memory, settings)
    >>> dx, dmemory, grads = backward(np.ones_like(y))
    >>> dx.shape, dmemory.shape, list(grads)
    ((1, 2, 4), (1, 5, 4), ['q', 'k', 'v', 'out'])
    """
    heads, heads_backward = cross_attention_heads(
        ops, params, x, memory, settings, keep_mask, bias=bias, dropout_key=dropout_key
    )
    y, out_backward = linear(ops, params["out"], heads)

    def backward(dy):
        dheads, out_grads = out_backward(dy)
        dx, dmemory, *dbias, grads = heads_backward(dheads)
        return dx, dmemory, *dbias, grads | {"out": out_grads}

    return y, backward


def self_attention_heads(ops, params, x, settings, keep_mask=None, *, bias=None, dropout_key=None):
    """concat(head_1 … head_H): ``self_attention`` without the output projection."""
    qkv, qkv_backward = packed_heads(ops, params, x, settings)
    if settings.window is not None:
        keep_mask = window_mask(x.shape[1], settings.window, keep_mask, like=x)
    # Without the window and what else acts before the operation.
    operation_settings = settings.without_layer_options
    # ``attention`` of each head, in reference/math/packed_attention.py.
    heads, peak, total = ops.self_attention(
        qkv, operation_settings, keep_mask, bias=bias, dropout_key=dropout_key
    )

    def backward(dheads):
        # The weights are computed again from the peak and the total of each row: of all T² of them
        # nothing is kept.
        gradients = ops.self_attention_backward(
            dheads,
            qkv,
            heads,
            peak,
            total,
            operation_settings,
            keep_mask,
            bias=bias,
            dropout_key=dropout_key,
        )
        if bias is None:
            return qkv_backward(gradients)
        dqkv, dbias = gradients
        dx, grads = qkv_backward(dqkv)
        return dx, dbias, grads

    return heads, backward


def cross_attention_heads(
    ops, params, x, memory, settings, keep_mask=None, *, bias=None, dropout_key=None
):
    """concat(head_1 … head_H): ``cross_attention`` without the output projection."""
    q, q_backward = project(ops, params, x, ("q",))
    kv, kv_backward = project(ops, params, memory, ("k", "v"))
    heads, peak, total = ops.cross_attention(
        q, kv, settings, keep_mask, bias=bias, dropout_key=dropout_key
    )

    def backward(dheads):
        dq, dkv, *dbias = ops.cross_attention_backward(
            dheads,
            q,
            kv,
            heads,
            peak,
            total,
            settings,
            keep_mask,
            bias=bias,
            dropout_key=dropout_key,
        )
        dx, q_grads = q_backward(dq)
        dmemory, kv_grads = kv_backward(dkv)
        return dx, dmemory, *dbias, q_grads | kv_grads

    return heads, backward


def packed_heads(ops, params, x, settings, positions=None):
    """The queries, keys and values of all heads side by side, (…, (H + 2*G)*K), of x.

    With ``qk_norm_eps`` queries and keys are normalised; with ``rotary`` they are turned after it.
    ``positions`` (R,) are those of x (R, D), in decoding; without them x is (B, T, D).

    The backward pass is dqkv -> (dx, grads).
    """
    # It comes first, as it refuses an x that is no array, which has no axes to check.
    qkv, project_backward = project(ops, params, x, ("q", "k", "v"), settings.parts)
    if x.ndim != (3 if positions is None else 2):
        expected = "(B, T, D)" if positions is None else "(R, D) with a cache"
        raise UserError(f"x has shape {x.shape}, expected {expected}")
    if settings.qk_norm_eps is None and settings.rotary is None:
        return qkv, project_backward

    if positions is None:
        positions = np.arange(x.shape[1], like=x)
    normed, norm_backward = _normalise_heads(ops, params, qkv, settings)
    turned, turn_backward = _turn_heads(ops, normed, settings, positions)

    def backward(dturned):
        dnormed = turn_backward(dturned)
        dqkv, norm_grads = norm_backward(dnormed)
        dx, grads = project_backward(dqkv)
        return dx, grads | norm_grads

    return turned, backward


def _normalise_heads(ops, params, qkv, settings):
    """The packed heads, of which those of queries and keys are normalised, if the settings say so.

    The backward pass is dy -> (dqkv, grads).
    """
    if settings.qk_norm_eps is None:
        return qkv, lambda dy: (dy, {})
    H = settings.n_heads
    G = settings.n_key_heads
    edges = [H, H + G]  # between the heads of q, k and v
    heads = qkv.reshape(*qkv.shape[:-1], settings.n_packed_heads, -1)
    q, k, v = np.split(heads, edges, axis=-2)
    q, q_backward = rms_norm(ops, params["q_norm"], q, settings.qk_norm_eps)
    k, k_backward = rms_norm(ops, params["k_norm"], k, settings.qk_norm_eps)

    def backward(dy):
        dq, dk, dv = np.split(dy.reshape(heads.shape), edges, axis=-2)
        dq, q_grads = q_backward(dq)
        dk, k_grads = k_backward(dk)
        dheads = np.concatenate([dq, dk, dv], axis=-2)
        return dheads.reshape(qkv.shape), {"q_norm": q_grads, "k_norm": k_grads}

    return np.concatenate([q, k, v], axis=-2).reshape(qkv.shape), backward


def _turn_heads(ops, qkv, settings, positions):
    """The packed heads, of which those of queries and keys are turned, if the settings say so."""
    if settings.rotary is None:
        return qkv, lambda dy: dy
    H = settings.n_heads
    G = settings.n_key_heads
    # Values are not turned: only a product of a query and a key is to know how far apart they are.
    n_turned = H + G
    options = vars(settings.rotary)
    y = ops.rotary(qkv, positions, n_turned, G, **options)

    def backward(dy):
        return ops.rotary_backward(dy, positions, n_turned, G, **options)

    return y, backward
