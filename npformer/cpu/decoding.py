"""Decoding a token at a time: keys and values are read where they lie, and the best entries found in one pass."""

import numpy as np

from npformer import reference
from npformer.cpu.activations import CODES, activate
from npformer.cpu.arrays import as_rows, suit
from npformer.cpu.blas import BLAS, can_multiply
from npformer.cpu.jit import kernel
from npformer.cpu.layer_norm import normalise_rows
from npformer.cpu.linear import map_few_rows
from npformer.cpu.memory import empty
from npformer.cpu.scalar import exp, largest, like
from npformer.cpu.team import board, wake_helper
from npformer.reference.checks import check_int
from npformer.reference.decoding import check_cached
from npformer.reference.fused import check_activation

EPS = 1e-5  # of layer_norm
NO_MASK = np.ones((1, 1), bool)
SUBLAYERS = ("attention", "memory_attention", "feed_forward")


def decoder_layer_step(
    x0,
    params,
    kv,
    at,
    memory_kv,
    memory_at,
    memory_mask=None,
    *,
    n_heads,
    norm="pre",
    activation="relu",
):
    """As ``reference.decoder_layer_step``, in one kernel: a step is so short that Python would take half of it."""
    check_activation(activation)
    maps = [
        params["attention"]["qkv"],
        params["attention"]["out"],
        params["memory_attention"]["q"],
        params["memory_attention"]["out"],
        params["feed_forward"]["hidden"],
        params["feed_forward"]["out"],
    ]
    norms = [params[f"{name}_norm"] for name in SUBLAYERS]
    weights = tuple([linear["weight"] for linear in maps])
    vectors = tuple([linear["bias"] for linear in maps] + [x for n in norms for x in (n["gain"], n["bias"])])
    mask = NO_MASK if memory_mask is None else memory_mask
    caches = kv, at, memory_kv, memory_at, mask
    if _fits_step(x0, weights, vectors, caches, n_heads) and norm in ("pre", "post"):
        wake_helper()
        x3 = np.empty_like(x0)
        if _step(
            board.ctypes.data,
            BLAS[x0.dtype],
            x0,
            weights,
            vectors,
            caches,
            n_heads,
            norm == "pre",
            CODES[activation],
            x3,
        ):
            return x3
    options = {"n_heads": n_heads, "norm": norm, "activation": activation}
    return reference.decoder_layer_step(x0, params, kv, at, memory_kv, memory_at, memory_mask, **options)


def _fits_step(x0, weights, vectors, caches, n_heads):
    """Whether the kernel can take these: contiguous arrays of one dtype, of shapes that fit."""
    kv, at, memory_kv, memory_at, mask = caches
    if not suit(x0, kv, memory_kv, *weights, *vectors) or not can_multiply(x0) or x0.ndim != 2 or x0.size == 0:
        return False
    (B, D), F = x0.shape, weights[-1].shape[0]
    return (
        all(
            type(ids) is np.ndarray and ids.dtype == np.int64 and ids.shape == (B, ids.size // B)
            for ids in (at, memory_at)
        )
        and type(mask) is np.ndarray
        and mask.dtype == bool
        and mask.shape in ((1, 1), memory_at.shape)
        and all(x.flags.c_contiguous for x in (x0, *caches, *weights, *vectors))
        and [w.shape for w in weights] == [(D, 3 * D), (D, D), (D, D), (D, D), (D, F), (F, D)]
        and [v.size for v in vectors] == [3 * D, D, D, D, F, *[D] * 7]
        and kv.shape[1:] == memory_kv.shape[1:] == (2 * D,)
        and at.size > 0
        and type(n_heads) is int
        and n_heads > 0
        and D % n_heads == 0
    )


@kernel
def _step(board, blas, x0, weights, vectors, caches, n_heads, pre, activation, x3):
    """False, with nothing done, if an id points beyond a cache."""
    kv, at, memory_kv, memory_at, mask = caches
    if not (_are_inside(at, len(kv)) and _are_inside(memory_at, len(memory_kv))):
        return False
    w_qkv, w_out, w_q, w_memory_out, w_hidden, w_feed_out = weights
    b_qkv, b_out, b_q, b_memory_out, b_hidden, b_feed_out, gain0, bias0, gain1, bias1, gain2, bias2 = vectors
    (B, D), F = x0.shape, len(b_hidden)
    scale = like(x0[0, 0], (D // n_heads) ** -0.5)
    h, heads, q = np.empty((B, D), x0.dtype), np.empty((B, D), x0.dtype), np.empty((B, D), x0.dtype)
    x1, x2, qkv = np.empty((B, D), x0.dtype), np.empty((B, D), x0.dtype), np.empty((B, 3 * D), x0.dtype)
    hidden = np.empty((B, F), x0.dtype)

    map_few_rows(board, blas, _before(x0, gain0, bias0, pre, h), w_qkv, b_qkv, qkv)
    for b in range(B):
        kv[at[b, -1]] = qkv[b, D:]
    _attend(qkv, kv, at, NO_MASK, n_heads, scale, heads)
    map_few_rows(board, blas, heads, w_out, b_out, x1)
    _after(x0, x1, gain0, bias0, pre)

    map_few_rows(board, blas, _before(x1, gain1, bias1, pre, h), w_q, b_q, q)
    _attend(q, memory_kv, memory_at, mask, n_heads, scale, heads)
    map_few_rows(board, blas, heads, w_memory_out, b_memory_out, x2)
    _after(x1, x2, gain1, bias1, pre)

    map_few_rows(board, blas, _before(x2, gain2, bias2, pre, h), w_hidden, b_hidden, hidden)
    for b in range(B):
        activate(hidden[b], hidden[b], activation)
    map_few_rows(board, blas, hidden, w_feed_out, b_feed_out, x3)
    _after(x2, x3, gain2, bias2, pre)
    return True


@kernel
def _are_inside(ids, size):
    wrong = 0
    for b in range(len(ids)):
        for s in range(ids.shape[1]):
            wrong += ids[b, s] < 0 or ids[b, s] >= size
    return wrong == 0


@kernel
def _before(x, gain, bias, pre, h):
    """What a sublayer reads."""
    if not pre:
        return x
    _normalise(x, gain, bias, h)
    return h


@kernel
def _after(x, y, gain, bias, pre):
    """What the next sublayer gets: y, the sublayer's result, becomes x + y, normalised in a post-norm model."""
    for b in range(len(x)):
        for j in range(x.shape[1]):
            y[b, j] += x[b, j]
    if not pre:
        _normalise(y, gain, bias, y)


@kernel
def _normalise(x, gain, bias, y):
    statistics = np.empty((2, len(x)), x.dtype)
    normalise_rows(x, gain, bias, like(x[0, 0], EPS), y, statistics[0], statistics[1])


def cached_attention(q, kv, at, n_heads, keep_mask=None):
    """As ``reference.cached_attention``."""
    fits = suit(q, kv) and type(at) is np.ndarray and at.size > 0 and q.size > 0
    if not fits or not (keep_mask is None or type(keep_mask) is np.ndarray):
        return reference.cached_attention(q, kv, at, n_heads, keep_mask)
    check_cached(q, kv, at, n_heads, keep_mask)
    if keep_mask is not None and keep_mask.dtype != bool:
        return reference.cached_attention(q, kv, at, n_heads, keep_mask)  # which refuses it
    at = np.ascontiguousarray(at, dtype=np.int64)
    keep_mask = NO_MASK if keep_mask is None else np.ascontiguousarray(keep_mask)
    out = empty(q.shape, q.dtype)
    scale = q.dtype.type((q.shape[1] // n_heads) ** -0.5)
    _attend(as_rows(q), as_rows(kv), at, keep_mask, np.int64(n_heads), scale, out)
    return out


def log_softmax_top_k(x, k):
    """As ``reference.log_softmax_top_k``."""
    if not suit(x) or x.ndim != 2 or x.size == 0:
        return reference.log_softmax_top_k(x, k)
    check_int("k", k, at_least=1)
    n = min(k, x.shape[1])
    values, ids = np.empty((len(x), n), x.dtype), np.empty((len(x), n), np.int64)
    _top(as_rows(x), values, ids)
    return values, ids


@kernel
def _attend(q, kv, at, keep_mask, n_heads, scale, out):
    """The queries may be followed by something else in their rows."""
    (B, D), S = out.shape, at.shape[1]
    K = D // n_heads
    weights = np.empty((1, S), q.dtype)
    for b in range(B):
        keep = keep_mask[b % len(keep_mask)]
        for h in range(n_heads):
            _weigh(q[b, h * K : (h + 1) * K], kv, at[b], keep, h * K, scale, weights)
            row = out[b, h * K : (h + 1) * K]
            row[:] = like(scale, 0)
            for s in range(S):
                if weights[0, s] != like(scale, 0):  # what is masked may be NaN
                    _add(row, weights[0, s], kv[at[b, s], D + h * K : D + (h + 1) * K])


@kernel
def _weigh(query, kv, at, keep, first, scale, weights):
    """softmax(scale · query · key) over the keys of one row; zeros if it may see none."""
    n, K = len(at), len(query)
    for s in range(n):
        key = kv[at[s], first : first + K]
        score = like(scale, 0)
        for j in range(K):
            score += query[j] * key[j]
        weights[0, s] = score * scale if keep[s % len(keep)] else -like(scale, np.inf)
    peak, total = largest(weights, 0, n), like(scale, 0)
    if peak == -np.inf:
        weights[0, :] = like(scale, 0)
        return
    for s in range(n):
        weights[0, s] = exp(weights[0, s] - peak)
        total += weights[0, s]
    for s in range(n):
        weights[0, s] /= total


@kernel
def _add(row, weight, value):
    for j in range(len(row)):
        row[j] += weight * value[j]


@kernel
def _top(x, values, ids):
    """Each entry is compared with the k-th best so far, and moved up to its place if it is better."""
    (n, V), k = x.shape, values.shape[1]
    for i in range(n):
        row, best, where = x[i], values[i], ids[i]
        found = 0
        for j in range(V):
            if found == k and not row[j] > best[k - 1]:
                continue
            place = min(found, k - 1)
            while place > 0 and row[j] > best[place - 1]:
                best[place], where[place] = best[place - 1], where[place - 1]
                place -= 1
            best[place], where[place] = row[j], j
            found = min(found + 1, k)
        peak, total = best[0], like(x[0, 0], 0)
        if peak == -np.inf:
            continue
        for j in range(V):
            total += exp(row[j] - peak)
        for j in range(k):
            best[j] -= peak + np.log(total)
