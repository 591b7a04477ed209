"""Decoding one token at a time: cached keys and values are not copied, and one pass finds the k best entries."""

from functools import cache
from typing import NamedTuple

import numba
import numpy as np

from npformer import reference
from npformer.checks import check_in_dtype
from npformer.cpu.backend import ALIGNED, C_CONTIGUOUS, WRITEABLE, kernel_of, ops
from npformer.cpu.blas import BLAS
from npformer.cpu.jit import address_of, inlined, kernel
from npformer.cpu.kernels.activations import KINDS, activate
from npformer.cpu.kernels.flash_attention import with_four_axes
from npformer.cpu.kernels.linear import NOTHING, map_few_rows
from npformer.cpu.kernels.normalisation import normalise_rows, scale_rows
from npformer.cpu.kernels.rotary import turn_row, turns
from npformer.cpu.scalar import exp_negative, largest, like
from npformer.cpu.team import JIT, JOB_TYPE, PIECES, add_multiple, helper_for, panels_of, place, pointer, share
from npformer.operations.options import changed_fields
from npformer.quantized import Quantized
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
SHARED = 2**13  # the fewest products of numbers of queries and keys that threads share
# The fields of the settings that the kernel of a step reads. It is not used with others that are not at their defaults.
OF_LAYER = {"attention", "norm", "norm_type", "eps", "activation", "dropout_rate", "hidden_dropout_rate"}
OF_ATTENTION = {"n_heads", "n_kv_heads", "causal", "window", "scale", "dropout_rate", "rotary"}
ATTENTION, MEMORY, FEED = 0, 8, 16  # the first of the arrays of each: two weights, their scales, their biases, a norm
NORM = 6  # from there to the gain of its normalisation


class Step(NamedTuple):
    """The settings of a layer, as the kernel takes them."""

    n_heads: int
    scale: np.ndarray  # (1,), as a job of the threads holds addresses
    pre: bool
    is_rms: bool
    eps: float
    activation: NamedTuple
    has_memory: bool
    is_halves: bool


def stack_step(layers, settings, has_memory, max_rows, n_steps):
    """The layers of a stack for the newest token of each row, as a function; None if there is no kernel for them.

    ``step(x, cache, memory)`` is ``layers.decoder_layer`` or, without a memory, ``layers.encoder_layer`` with a cache,
    of one layer after another, or ``NotImplemented``. The first axis of the arrays ``kv`` are the layers. All rows
    write their keys and values before any of them attends, so the rows may be the positions of one sentence. It is one
    kernel: calls from Python would take half the time of such a short step. The weights may be copied: they must not
    change while it is used.
    """
    if not changed_fields(settings) <= OF_LAYER or not changed_fields(settings.attention) <= OF_ATTENTION:
        return None
    found = [fused_arrays(params, settings) for params in layers]
    if not found or None in found or len({tuple((x.shape, x.dtype) for x in arrays) for arrays in found}) > 1:
        return None
    (weight, *_, gain, _), window, rotary = found[0], settings.attention.window, settings.attention.rotary
    D, dtype, n_heads = len(gain), gain.dtype, settings.attention.n_heads
    settled, helper = step_of(settings, D, dtype, has_memory), (dtype, weight.dtype)
    attends = _address_of_piece(numba.from_dtype(dtype))
    panels = [[NOTHING[dtype]] * len(arrays) for arrays in found]
    if weight.dtype == dtype:
        at = [n for n, x in enumerate(found[0]) if x.ndim == 2]
        copies = iter(panels_of([arrays[n] for arrays in found for n in at], max_rows, n_steps))
        panels = [[next(copies) if n in at else x for n, x in enumerate(each)] for each in panels]
    addresses = np.array([[[x.ctypes.data for x in each] for each in both] for both in zip(found, panels, strict=True)])
    sizes = np.array([[(*x.shape, 1)[:2] for x in each] for each in (found[0], panels[0])])

    def step(x0, cache, memory=None):
        memory = memory if has_memory else cache  # which is not read as one
        hidden = window is not None and cache.at.shape[1] > window
        arrays = cache.kv, cache.at, memory.kv, memory.at  # whose addresses the threads share
        suited = all(x.flags.c_contiguous for x in arrays) and cache.at.dtype == memory.at.dtype == np.int64
        if hidden or not suited or len(x0) > FEW_ROWS or not x0.dtype == cache.kv.dtype == memory.kv.dtype == dtype:
            return NotImplemented  # dtypes differ also in the order of their bytes
        masks = [NO_MASK if c.keep_mask is None else np.ascontiguousarray(c.keep_mask) for c in (cache, memory)]
        caches = *arrays[:2], masks[0], *arrays[2:], masks[1]
        x, turned = np.array(x0), turns_of(cache, rotary, len(x0), D // n_heads, dtype)
        params = addresses, sizes, weight, gain
        _steps((helper_for(*helper), BLAS[dtype], attends), x, params, caches, turned, settled)
        return x

    step.arrays = found, panels  # keeps the memory at the addresses, also if params are replaced
    return step


if JIT:
    ops.hooks["stack_step"] = stack_step


@cache  # the same in all layers
def step_of(settings, d_model, dtype, has_memory):
    """The settings for the kernel of a layer, which has no dropout and sees what its cache has."""
    attention = settings.attention
    check_in_dtype("eps", settings.norm_eps, dtype)
    scale = np.array([scale_of(d_model // attention.n_heads, attention.scale)], dtype)
    norm = settings.norm == "pre", settings.norm_type == "rms_norm", dtype.type(settings.norm_eps)
    is_halves = attention.rotary is not None and attention.rotary.pairs == "halves"
    return Step(attention.n_heads, scale, *norm, KINDS[settings.activation], has_memory, is_halves)


def turns_of(cache, rotary, n_rows, K, dtype):
    """The cosines and sines of the newest positions (2, R, K/2); without rotary positions (2, 0, 0)."""
    if rotary is None:
        return np.empty((2, 0, 0), dtype)
    positions = cache.newest_positions
    found = turns(positions.tobytes(), positions.dtype, K, rotary.base, rotary.scaling, dtype)
    return np.repeat(found, n_rows, axis=1) if len(positions) < n_rows else found


def fused_arrays(params, settings):
    """The arrays of a layer for its kernel, in a list, eight for each sublayer; None if it does not take them.

    It takes packed projections. What a layer does not have is empty: a sublayer, biases, scales of weights of floats.
    Weights of 8-bit integers are transposed.
    """
    try:
        first = params["attention"]["qkv"]["weight"]
        nothing = np.empty(0, first.dtype)
        split = lambda x: (x.values.T, x.scale[0]) if isinstance(x, Quantized) else (x, nothing)
        D, dtypes = first.shape[0], [split(first)[0].dtype] * 2 + [first.dtype] * 6
        widths, n, arrays = settings.attention.widths(D), INPUTS[settings.activation], []
        for name, parts in SUBLAYERS.items():
            if name not in params:
                arrays += [nothing] * 8
                continue
            maps, norm = [params[name][part] for part in parts], params[f"{name}_norm"]
            F = maps[1]["weight"].shape[0] if name == "feed_forward" else D
            inner = {"attention": sum(widths), "memory_attention": D, "feed_forward": n * F}[name]
            weights, scales = zip(*(split(x["weight"]) for x in maps), strict=True)
            others = [*(x.get("bias", nothing) for x in maps), norm["gain"], norm.get("bias", nothing)]
            step = -1 if weights[0].itemsize == 1 else 1
            shapes = [(D, inner)[::step], (F, D)[::step], *[(inner,), (D,)] * 2, (D,), (D,)]
            for x, shape, dtype in zip([*weights, *scales, *others], shapes, dtypes, strict=True):
                is_there = x is nothing or (x.shape == shape and x.flags.num & SUITED == SUITED)
                if type(x) is not np.ndarray or x.dtype != dtype or not is_there:
                    return None
            arrays += [*weights, *scales, *others]
    except (KeyError, AttributeError):
        return None
    return arrays if first.dtype in BLAS else None


@kernel_of(reference.cached_attention, knows="causal scale dropout_rate")
def cached_attention(q, kv, at, settings, keep_mask, bias):
    out, scale = empty(q.shape, q.dtype), q.dtype.type(scale_of(q.shape[1] // settings.n_heads, settings.scale))
    keep_mask = NO_MASK if keep_mask is None else keep_mask
    if bias is None:
        bias = np.empty((1, 1, 1, 0), q.dtype)
    else:
        bias = with_four_axes(bias, (len(q), settings.n_heads, 1, 1), at.shape[1])
    _attend_rows(q, kv, at, keep_mask, bias, settings.n_heads, scale, out)
    return out if np.isfinite(out).all() else NotImplemented  # the reference handles inf and NaN as in other attention


@kernel_of(reference.log_softmax_top_k)
def log_softmax_top_k(x, k):
    shape = len(x), min(k, x.shape[1])
    values, ids = np.empty(shape, x.dtype), np.empty(shape, np.int64)
    _top(x, values, ids)
    return values, ids


@kernel
def _steps(threads, x, params, caches, turns, step):
    """Turn x into the output of the layers, one after another."""
    addresses, sizes, weight, vector = params
    kv, at, mask, memory_kv, memory_at, memory_mask = caches
    for i in range(len(addresses)):
        of = threads, addresses[i], sizes, weight, vector
        _step(of, x, (kv[i], at, mask, memory_kv[i], memory_at, memory_mask), turns, step)


@inlined
def _step(of, x, caches, turns, step):
    """One layer. Its sublayers are a loop, so that what they share is compiled once."""
    kv, at, mask, memory_kv, memory_at, memory_mask = caches
    (B, D), number, sizes = x.shape, x.dtype, of[2]
    h, y = np.empty((B, D), number), np.empty((B, D), number)
    for sublayer in range(ATTENTION, FEED + 1, MEMORY - ATTENTION):
        if sublayer == MEMORY and not step.has_memory:
            continue
        inner = np.empty((B, sizes[0, sublayer].prod() // D), number)
        between = np.empty((B, sizes[0, sublayer + 1].prod() // D), number)
        _map(of, sublayer, _before(of, sublayer, x, step, h), inner)
        if sublayer == ATTENTION:
            for b in range(len(turns[0])):
                turn_row(inner[b], turns[0, b], turns[1, b], D + kv.shape[1] // 2, step.is_halves, inner[b])
            for b in range(B):
                for j in range(kv.shape[1]):
                    kv[at[b, -1], j] = inner[b, D + j]
        if sublayer == FEED:
            for b in range(B):
                activate(step.activation, inner[b], between[b])
        else:
            read = (memory_kv, memory_at, memory_mask) if sublayer == MEMORY else (kv, at, mask)
            _attend_together(of[0], inner, *read, step, between)
        _map(of, sublayer + 1, between, y)
        _after(of, sublayer, y, step, x)


@inlined
def _map(of, n, x, y):
    """A linear map, whose weight is the n-th array of a layer."""
    (helper, blas, _), addresses, sizes, weight, vector = of
    matrix = numba.carray(pointer(addresses[0, n]), (sizes[0, n, 0], sizes[0, n, 1]), weight.dtype)
    panels = numba.carray(pointer(addresses[1, n]), (sizes[1, n, 0],), vector.dtype)
    map_few_rows(helper, blas, x, matrix, panels, _vector(of, n + 2), _vector(of, n + 4), y)


@inlined
def _vector(of, n):
    """The n-th array of a layer, a vector."""
    _, addresses, sizes, _, vector = of
    return numba.carray(pointer(addresses[0, n]), (sizes[0, n, 0],), vector.dtype)


@inlined
def _before(of, sublayer, x, step, h):
    """The input of a sublayer: x, normalised in a pre-norm model."""
    if not step.pre:
        return x
    _normalise(x, _vector(of, sublayer + NORM), _vector(of, sublayer + NORM + 1), step, h)
    return h


@inlined
def _after(of, sublayer, y, step, x):
    """Turn y, the output of a sublayer, into the input of the next one: x + y, normalised in a post-norm model."""
    for b in range(len(x)):
        for j in range(x.shape[1]):
            x[b, j] += y[b, j]
    if not step.pre:
        _normalise(x, _vector(of, sublayer + NORM), _vector(of, sublayer + NORM + 1), step, x)


@inlined
def _normalise(x, gain, bias, step, y):
    statistics = np.empty((2, len(x)), x.dtype)
    if step.is_rms:
        scale_rows(x, gain, step.eps, y, statistics[0])
    else:
        normalise_rows(x, gain, bias, step.eps, y, statistics[0], statistics[1])


@inlined
def _attend_together(threads, q, kv, at, keep_mask, step, out):
    """Attention of some rows, whose heads are shared with the helpers that are awake."""
    (B, D), (n, width), S = out.shape, kv.shape, at.shape[1]
    sizes = (min(PIECES, B * step.n_heads), B, D, step.n_heads, q.shape[1], n, width, S)
    mask = len(keep_mask), keep_mask.shape[3], place(keep_mask)
    job = (*sizes, *mask, place(q), place(kv), place(at), place(out), place(step.scale))
    (board, _), _, attends = threads
    share(board if B * S * D >= SHARED else 0, attends, job)


@cache
def _address_of_piece(number):
    """The address of ``piece(job, n)``, which computes the n-th piece of the heads of all rows."""

    def piece(job, n):
        pieces, B, D, n_heads, q_width, n_entries, width, S, rows, columns, mask, q, kv, at, out, scale = job
        q, kv = numba.carray(pointer(q), (B, q_width), number), numba.carray(pointer(kv), (n_entries, width), number)
        at = numba.carray(pointer(at), (B, S), np.int64)
        mask = numba.carray(pointer(mask), (rows, 1, 1, columns), np.bool_)
        scale, out = numba.carray(pointer(scale), (1,), number)[0], numba.carray(pointer(out), (B, D), number)
        first, last = B * n_heads * n // pieces, B * n_heads * (n + 1) // pieces
        _attend(q, kv, at, mask, np.empty((1, 1, 1, 0), number), n_heads, scale, out, first, last)

    return address_of(piece, numba.void(JOB_TYPE, numba.int64))


@kernel
def _attend_rows(q, kv, at, keep_mask, bias, n_heads, scale, out):
    _attend(q, kv, at, keep_mask, bias, n_heads, scale, out, 0, len(out) * n_heads)


@inlined
def _attend(q, kv, at, keep_mask, bias, n_heads, scale, out, first, last):
    """Some heads, counted over all rows. The rows of q begin with the queries, and may hold other numbers after them.

    Heads may share keys and values.
    """
    S, values, K = at.shape[1], kv.shape[1] // 2, out.shape[1] // n_heads
    n_shared, weights = n_heads * K // values, np.empty((1, S), q.dtype)
    for i in range(first, last):
        b, h = i // n_heads, i % n_heads
        keep, begin = keep_mask[b % len(keep_mask), 0, 0], h // n_shared * K
        added = bias[b % len(bias), h % bias.shape[1], 0]
        _weigh(q[b, h * K : (h + 1) * K], kv, at[b], keep, added, begin, scale, weights)
        row = out[b, h * K : (h + 1) * K]
        row[:] = like(scale, 0)
        for s in range(S):
            if weights[0, s] != like(scale, 0):  # masked values may be NaN
                add_multiple(weights[0, s], kv[at[b, s], values + begin : values + begin + K], row)


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
                rank = min(found, k - 1)
                while rank > 0 and _beats(block[j], best[rank - 1]):
                    best[rank], where[rank] = best[rank - 1], where[rank - 1]
                    rank -= 1
                best[rank], where[rank] = block[j], start + j
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
