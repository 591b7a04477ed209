"""Decoding a token at a time: keys and values are read where they lie, and the best entries found in one pass."""

import numpy as np

from npformer import reference
from npformer.cpu.arrays import as_rows, suit
from npformer.cpu.jit import kernel
from npformer.cpu.memory import empty
from npformer.cpu.scalar import exp, largest, like
from npformer.reference.checks import check_int
from npformer.reference.decoding import check_cached


def cached_attention(q, kv, at, n_heads, keep_mask=None):
    """As ``reference.cached_attention``."""
    fits = suit(q, kv) and type(at) is np.ndarray and at.size > 0 and q.size > 0
    if not fits or not (keep_mask is None or type(keep_mask) is np.ndarray):
        return reference.cached_attention(q, kv, at, n_heads, keep_mask)
    check_cached(q, kv, at, n_heads, keep_mask)
    if keep_mask is not None and keep_mask.dtype != bool:
        return reference.cached_attention(q, kv, at, n_heads, keep_mask)  # which refuses it
    at = np.ascontiguousarray(at, dtype=np.int64)
    keep_mask = np.ones((1, 1), bool) if keep_mask is None else np.ascontiguousarray(keep_mask)
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
    (B, D), S = q.shape, at.shape[1]
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
        for j in range(V):
            total += exp(row[j] - peak)
        for j in range(k):
            best[j] -= peak + np.log(total)
