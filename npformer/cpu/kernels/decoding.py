"""Decoding one token at a time: cached keys and values are not copied, and one pass finds the k best entries."""

from functools import cache
from typing import NamedTuple

import numpy as np

from npformer import reference
from npformer.checks import check_in_dtype
from npformer.cpu.backend import ALIGNED, C_CONTIGUOUS, WRITEABLE, kernel_of, ops
from npformer.cpu.blas import BLAS
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.kernels.activations import CODES, activate
from npformer.cpu.kernels.flash_attention import no_bias, with_four_axes
from npformer.cpu.kernels.linear import map_few_rows
from npformer.cpu.kernels.normalisation import normalise_rows
from npformer.cpu.scalar import exp_negative, largest, like
from npformer.cpu.team import add_multiple, helper_for
from npformer.reference.math.activations import INPUTS
from npformer.reference.math.attention import scale_of
from npformer.reference.settings import AttentionSettings, LayerSettings
from npformer.runtime.memory import empty
from npformer.runtime.threads import FEW_ROWS

BLOCK = 128  # entries that are compared together: in most blocks none is among the best
NO_MASK = np.ones((1, 1, 1, 1), bool)
SUITED = C_CONTIGUOUS | ALIGNED | WRITEABLE
MAPS = [("attention", "qkv"), ("attention", "out"), ("memory_attention", "q"), ("memory_attention", "out")]
MAPS += [("feed_forward", "hidden"), ("feed_forward", "out")]
NORMS = ["attention_norm", "memory_attention_norm", "feed_forward_norm"]


class Step(NamedTuple):
    """The settings of a layer, as the kernel takes them."""

    n_heads: int
    scale: float
    pre: bool
    eps: float
    activation: int


def decoder_layer_step(params, x0, cache, memory, settings):
    """``layers.decoder_layer`` for the newest token of each row, with caches, or ``NotImplemented``.

    It is one kernel: calls from Python would take half the time of such a short step.
    """
    is_suited = len(x0) <= FEW_ROWS and cache.kv.dtype == memory.kv.dtype == x0.dtype  # also in the order of its bytes
    step = step_of(settings, x0.shape[1], x0.dtype) if is_suited else None
    arrays = fused_arrays(params, x0, settings.attention) if step else None
    if arrays is None:
        return NotImplemented
    masks = [NO_MASK if part.keep_mask is None else part.keep_mask for part in (cache, memory)]
    caches = cache.kv, cache.at, masks[0], memory.kv, memory.at, masks[1]
    x3 = np.empty_like(x0)
    _step(helper_for(x0.dtype), BLAS[x0.dtype], x0, *arrays, caches, step, x3)
    return x3


ops.hooks["decoder_layer_step"] = decoder_layer_step


@cache  # the same in all layers and steps
def step_of(settings, d_model, dtype):
    """The settings for the kernel of a whole layer; None if it does not take this layer.

    It takes layer normalisation, and activations that have one input per output. A decoder layer is causal anyway.
    """
    attention = settings.attention
    known = LayerSettings(
        AttentionSettings(attention.n_heads, attention.n_kv_heads, attention.causal, scale=attention.scale),
        norm=settings.norm,
        eps=settings.eps,
        activation=settings.activation,
    )
    if settings != known or INPUTS[settings.activation] > 1:  # a setting that the kernel does not know
        return None
    check_in_dtype("eps", settings.norm_eps, dtype)
    scale = scale_of(d_model // attention.n_heads, attention.scale)
    pre, code = settings.norm == "pre", CODES[settings.activation]
    return Step(attention.n_heads, dtype.type(scale), pre, dtype.type(settings.norm_eps), code)


def fused_arrays(params, x0, attention):
    """(weights, vectors) for the kernel of a whole layer; None if it does not take them.

    It takes packed projections, each with a bias.
    """
    try:
        maps = [params[sublayer][name] for sublayer, name in MAPS]
        norms = [params[name] for name in NORMS]
        weights = tuple([linear["weight"] for linear in maps])
        vectors = tuple([linear["bias"] for linear in maps] + [x for n in norms for x in (n["gain"], n["bias"])])
    except KeyError:
        return None
    D, F = x0.shape[1], weights[-1].shape[0]
    P = sum(attention.widths(D))
    shapes = [(D, P), (D, D), (D, D), (D, D), (D, F), (F, D), (P,), (D,), (D,), (D,), (F,), *[(D,)] * 7]
    for x, shape in zip((*weights, *vectors), shapes, strict=True):
        if type(x) is not np.ndarray or x.shape != shape or x.dtype != x0.dtype or x.flags.num & SUITED != SUITED:
            return None
    return weights, vectors


@kernel_of(reference.cached_attention)
def cached_attention(q, kv, at, settings, keep_mask, bias):
    out, scale = empty(q.shape, q.dtype), q.dtype.type(scale_of(q.shape[1] // settings.n_heads, settings.scale))
    keep_mask = NO_MASK if keep_mask is None else keep_mask
    bias = no_bias(q.dtype) if bias is None else with_four_axes(bias, (len(q), settings.n_heads, 1, 1), at.shape[1])
    _attend(q, kv, at, keep_mask, bias, settings.n_heads, scale, out)
    return out if np.isfinite(out).all() else NotImplemented  # the reference handles inf and NaN as in other attention


@kernel_of(reference.log_softmax_top_k)
def log_softmax_top_k(x, k):
    shape = len(x), min(k, x.shape[1])
    values, ids = np.empty(shape, x.dtype), np.empty(shape, np.int64)
    _top(x, values, ids)
    return values, ids


@kernel
def _step(helper, blas, x0, weights, vectors, caches, step, x3):
    kv, at, mask, memory_kv, memory_at, memory_mask = caches
    w_qkv, w_out, w_q, w_memory_out, w_hidden, w_feed_out = weights
    b_qkv, b_out, b_q, b_memory_out, b_hidden, b_feed_out, gain0, bias0, gain1, bias1, gain2, bias2 = vectors
    (B, D), F = x0.shape, len(b_hidden)
    h, heads, q = np.empty((B, D), x0.dtype), np.empty((B, D), x0.dtype), np.empty((B, D), x0.dtype)
    x1, x2, qkv = np.empty((B, D), x0.dtype), np.empty((B, D), x0.dtype), np.empty((B, len(b_qkv)), x0.dtype)
    hidden, nothing = np.empty((B, F), x0.dtype), np.empty((1, 1, 1, 0), x0.dtype)

    map_few_rows(helper, blas, _before(x0, gain0, bias0, step, h), w_qkv, b_qkv, qkv)
    for b in range(B):
        for j in range(kv.shape[1]):
            kv[at[b, -1], j] = qkv[b, D + j]
    _attend(qkv, kv, at, mask, nothing, step.n_heads, step.scale, heads)
    map_few_rows(helper, blas, heads, w_out, b_out, x1)
    _after(x0, x1, gain0, bias0, step)

    map_few_rows(helper, blas, _before(x1, gain1, bias1, step, h), w_q, b_q, q)
    _attend(q, memory_kv, memory_at, memory_mask, nothing, step.n_heads, step.scale, heads)
    map_few_rows(helper, blas, heads, w_memory_out, b_memory_out, x2)
    _after(x1, x2, gain1, bias1, step)

    map_few_rows(helper, blas, _before(x2, gain2, bias2, step, h), w_hidden, b_hidden, hidden)
    for b in range(B):
        activate(hidden[b], hidden[b], step.activation)
    map_few_rows(helper, blas, hidden, w_feed_out, b_feed_out, x3)
    _after(x2, x3, gain2, bias2, step)


@inlined
def _before(x, gain, bias, step, h):
    """The input of a sublayer: x, normalised in a pre-norm model."""
    if not step.pre:
        return x
    _normalise(x, gain, bias, step.eps, h)
    return h


@inlined
def _after(x, y, gain, bias, step):
    """Turn y, the output of a sublayer, into the input of the next one: x + y, normalised in a post-norm model."""
    for b in range(len(x)):
        for j in range(x.shape[1]):
            y[b, j] += x[b, j]
    if not step.pre:
        _normalise(y, gain, bias, step.eps, y)


@inlined
def _normalise(x, gain, bias, eps, y):
    statistics = np.empty((2, len(x)), x.dtype)
    normalise_rows(x, gain, bias, eps, y, statistics[0], statistics[1])


@inlined
def _attend(q, kv, at, keep_mask, bias, n_heads, scale, out):
    """The rows of q begin with the queries, and may hold other numbers after them. Heads may share keys and values."""
    (B, D), S, values = out.shape, at.shape[1], kv.shape[1] // 2
    K, share = D // n_heads, D // values
    weights = np.empty((1, S), q.dtype)
    for b in range(B):
        keep = keep_mask[b % len(keep_mask), 0, 0]
        for h in range(n_heads):
            first = h // share * K
            added = bias[b % len(bias), h % bias.shape[1], 0]
            _weigh(q[b, h * K : (h + 1) * K], kv, at[b], keep, added, first, scale, weights)
            row = out[b, h * K : (h + 1) * K]
            row[:] = like(scale, 0)
            for s in range(S):
                if weights[0, s] != like(scale, 0):  # masked values may be NaN
                    add_multiple(weights[0, s], kv[at[b, s], values + first : values + first + K], row)


@inlined
def _weigh(query, kv, at, keep, added, first, scale, weights):
    """softmax(scale · query · key + added) over the keys of one row; zeros if all keys are masked."""
    n, K = len(at), len(query)
    for s in range(n):
        key = kv[at[s], first : first + K]
        score = like(scale, 0)
        for j in range(K):
            score += query[j] * key[j]
        score = score * scale + added[s] if len(added) else score * scale
        weights[0, s] = score if keep[s % len(keep)] else -like(scale, np.inf)
    peak, total = largest(weights, 0, n), like(scale, 0)
    if peak == -np.inf:
        weights[0, :] = like(scale, 0)
        return
    for s in range(n):
        weights[0, s] = exp_negative(weights[0, s] - peak)
        total += weights[0, s]
    for s in range(n):
        weights[0, s] /= total


@inlined
def _beats(x, y):
    """Whether x comes before y; NaN comes last."""
    return x > y or (y != y and x == x)


@inlined
def _any_beats(block, worst):
    """Whether any entry of a block beats the worst of the best. All are counted, so that LLVM vectorises the loop."""
    n = 0
    for j in range(len(block)):
        n += _beats(block[j], worst)
    return n > 0


@kernel
def _top(x, values, ids):
    """The k best entries of each row and their ids. An entry that beats the k-th best so far is inserted in order."""
    (n, V), k = x.shape, values.shape[1]
    for i in range(n):
        row, best, where = x[i], values[i], ids[i]
        found = 0
        for start in range(0, V, BLOCK):
            block = row[start : start + BLOCK]
            if found == k and not _any_beats(block, best[k - 1]):
                continue
            for j in range(len(block)):
                if found == k and not _beats(block[j], best[k - 1]):
                    continue
                place = min(found, k - 1)
                while place > 0 and _beats(block[j], best[place - 1]):
                    best[place], where[place] = best[place - 1], where[place - 1]
                    place -= 1
                best[place], where[place] = block[j], start + j
                found = min(found + 1, k)
        peak, total = best[0], like(x[0, 0], 0)
        if peak == -np.inf:
            continue
        for j in range(k):  # before the logarithm is subtracted: added to a large peak, it would lose its digits
            best[j] -= peak
        for j in range(V):
            total += exp_negative(row[j] - peak)
        log_total = like(peak, np.log(total))
        for j in range(k):
            best[j] -= log_total
