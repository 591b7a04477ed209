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
from npformer.cpu.kernels.normalisation import normalise_rows, scale_rows
from npformer.cpu.kernels.rotary import turn_row, turns
from npformer.cpu.scalar import exp_negative, largest, like
from npformer.cpu.team import add_multiple, helper_for
from npformer.reference.math.activations import INPUTS
from npformer.reference.math.attention import scale_of
from npformer.runtime.memory import empty
from npformer.runtime.threads import FEW_ROWS

BLOCK = 128  # entries that are compared together: in most blocks none is among the best
NO_MASK = np.ones((1, 1, 1, 1), bool)
SUITED = C_CONTIGUOUS | ALIGNED | WRITEABLE
SUBLAYERS = {  # the projections of a sublayer that begin and end it
    "attention": ("qkv", "out"),
    "memory_attention": ("q", "out"),
    "feed_forward": ("hidden", "out"),
}


class Step(NamedTuple):
    """The settings of a layer, as the kernel takes them."""

    n_heads: int
    scale: float
    pre: bool
    is_rms: bool
    eps: float
    activation: int
    has_memory: bool
    is_halves: bool


def layer_step(params, settings, has_memory):
    """A layer for the newest token of each row, as a function; None if there is no kernel for such parameters.

    ``step(x0, cache, memory)`` is ``layers.decoder_layer`` or, without a memory, ``layers.encoder_layer`` with causal
    attention, or ``NotImplemented``. It is one kernel: calls from Python would take half the time of such a short step.
    """
    arrays = fused_arrays(params, settings)
    if arrays is None:
        return None
    (D, _), dtype = arrays[0][0].shape, arrays[0][0].dtype
    settled = step_of(settings, D, dtype, has_memory)
    window, rotary = settings.attention.window, settings.attention.rotary

    def step(x0, cache, memory=None):
        caches = (cache, memory) if has_memory else (cache, cache)  # which is not read as a memory
        hidden = window is not None and cache.at.shape[1] > window
        if hidden or len(x0) > FEW_ROWS or not x0.dtype == caches[0].kv.dtype == caches[1].kv.dtype == dtype:
            return NotImplemented  # dtypes differ also in the order of their bytes
        parts = [x for c in caches for x in (c.kv, c.at, NO_MASK if c.keep_mask is None else c.keep_mask)]
        x3, turned = np.empty_like(x0), turns_of(cache, rotary, len(x0), D // settled.n_heads, dtype)
        _step(helper_for(dtype), BLAS[dtype], x0, *arrays, tuple(parts), turned, settled, x3)
        return x3

    return step


ops.hooks["layer_step"] = layer_step


@cache  # the same in all layers
def step_of(settings, d_model, dtype, has_memory):
    """The settings for the kernel of a layer, which has no dropout and is causal anyway."""
    attention = settings.attention
    check_in_dtype("eps", settings.norm_eps, dtype)
    scale = dtype.type(scale_of(d_model // attention.n_heads, attention.scale))
    norm = settings.norm == "pre", settings.norm_type == "rms_norm", dtype.type(settings.norm_eps)
    is_halves = attention.rotary is not None and attention.rotary.pairs == "halves"
    return Step(attention.n_heads, scale, *norm, CODES[settings.activation], has_memory, is_halves)


def turns_of(cache, rotary, n_rows, K, dtype):
    """The cosines and sines of the newest positions (2, R, K/2); without rotary positions (2, 0, 0)."""
    if rotary is None:
        return np.empty((2, 0, 0), dtype)
    positions = cache.newest_positions
    found = turns(positions.tobytes(), positions.dtype, K, rotary.base, rotary.scaling, dtype)
    return np.repeat(found, n_rows, axis=1) if len(positions) < n_rows else found


def fused_arrays(params, settings):
    """(weights, vectors) for the kernel of a layer; None if it does not take them.

    It takes packed projections. An array of a sublayer, or a bias, that a layer does not have is empty.
    """
    try:
        first = params["attention"]["qkv"]["weight"]
        D, dtype = len(first), first.dtype
        widths, n = settings.attention.widths(D), INPUTS[settings.activation]
        weights, vectors, nothing = [], [], np.empty(0, dtype)
        for name, parts in SUBLAYERS.items():
            if name not in params:
                weights += [np.empty((0, 0), dtype)] * 2
                vectors += [nothing] * 4
                continue
            maps, norm = [params[name][part] for part in parts], params[f"{name}_norm"]
            F = len(maps[1]["weight"]) if name == "feed_forward" else D
            inner = {"attention": sum(widths), "memory_attention": D, "feed_forward": n * F}[name]
            shapes = [(D, inner), (F, D), (inner,), (D,), (D,), (D,)]
            found = [*(x["weight"] for x in maps), *(x.get("bias", nothing) for x in maps)]
            found += [norm["gain"], norm.get("bias", nothing)]
            for x, shape in zip(found, shapes, strict=True):
                is_there = x is nothing or (x.shape == shape and x.flags.num & SUITED == SUITED)
                if type(x) is not np.ndarray or x.dtype != dtype or not is_there:
                    return None
            weights += found[:2]
            vectors += found[2:]
    except (KeyError, AttributeError):
        return None
    return (tuple(weights), tuple(vectors)) if dtype in BLAS else None


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
def _step(helper, blas, x0, weights, vectors, caches, turns, step, x3):
    kv, at, mask, memory_kv, memory_at, memory_mask = caches
    w_qkv, w_out, w_q, w_memory_out, w_hidden, w_feed_out = weights
    b_qkv, b_out, gain0, bias0, b_q, b_memory_out, gain1, bias1, b_hidden, b_feed_out, gain2, bias2 = vectors
    (B, D), F = x0.shape, len(w_feed_out)
    h, heads, x1 = np.empty((B, D), x0.dtype), np.empty((B, D), x0.dtype), np.empty((B, D), x0.dtype)
    qkv, nothing = np.empty((B, w_qkv.shape[1]), x0.dtype), np.empty((1, 1, 1, 0), x0.dtype)

    map_few_rows(helper, blas, _before(x0, gain0, bias0, step, h), w_qkv, b_qkv, qkv)
    for b in range(len(turns[0])):
        turn_row(qkv[b], turns[0, b], turns[1, b], qkv.shape[1] - kv.shape[1] // 2, step.is_halves, qkv[b])
    for b in range(B):
        for j in range(kv.shape[1]):
            kv[at[b, -1], j] = qkv[b, D + j]
    _attend(qkv, kv, at, mask, nothing, step.n_heads, step.scale, heads)
    map_few_rows(helper, blas, heads, w_out, b_out, x1)
    _after(x0, x1, gain0, bias0, step)

    x2 = x1
    if step.has_memory:
        q, x2 = np.empty((B, D), x0.dtype), np.empty((B, D), x0.dtype)
        map_few_rows(helper, blas, _before(x1, gain1, bias1, step, h), w_q, b_q, q)
        _attend(q, memory_kv, memory_at, memory_mask, nothing, step.n_heads, step.scale, heads)
        map_few_rows(helper, blas, heads, w_memory_out, b_memory_out, x2)
        _after(x1, x2, gain1, bias1, step)

    hidden, activated = np.empty((B, w_hidden.shape[1]), x0.dtype), np.empty((B, F), x0.dtype)
    map_few_rows(helper, blas, _before(x2, gain2, bias2, step, h), w_hidden, b_hidden, hidden)
    for b in range(B):
        activate(hidden[b], activated[b], step.activation)
    map_few_rows(helper, blas, activated, w_feed_out, b_feed_out, x3)
    _after(x2, x3, gain2, bias2, step)


@inlined
def _before(x, gain, bias, step, h):
    """The input of a sublayer: x, normalised in a pre-norm model."""
    if not step.pre:
        return x
    _normalise(x, gain, bias, step, h)
    return h


@inlined
def _after(x, y, gain, bias, step):
    """Turn y, the output of a sublayer, into the input of the next one: x + y, normalised in a post-norm model."""
    for b in range(len(x)):
        for j in range(x.shape[1]):
            y[b, j] += x[b, j]
    if not step.pre:
        _normalise(y, gain, bias, step, y)


@inlined
def _normalise(x, gain, bias, step, y):
    statistics = np.empty((2, len(x)), x.dtype)
    if step.is_rms:
        scale_rows(x, gain, step.eps, y, statistics[0])
    else:
        normalise_rows(x, gain, bias, step.eps, y, statistics[0], statistics[1])


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
