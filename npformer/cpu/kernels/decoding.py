"""Decoding one token at a time: ``reference.cached_attention`` and ``log_softmax_top_k``.

Keys and values are read where they lie in the cache, while the reference gathers them first. The k
best entries are found in one pass, without sorting.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from npformer import reference
from npformer.cpu.attention_tiles import with_four_axes
from npformer.cpu.backend import kernel_of
from npformer.cpu.few_rows import (
    PIECE_SIGNATURE,
    PIECES,
    add_multiple,
    array_at,
    record_at,
    share_pieces,
)
from npformer.cpu.jit import address_of, inlined, kernel
from npformer.cpu.rows import contiguous, largest
from npformer.cpu.scalar import exp_negative, like
from npformer.reference.math.attention import scale_of
from npformer.runtime.memory import empty

ENTRIES_COMPARED = 128  # entries that are compared together: in most blocks none is among the best
SHARED = 2**13  # the fewest products of numbers of queries and keys that threads share
ALL_KEPT = np.ones((1, 1), bool)


class AttentionJob(NamedTuple):
    """The job of attention of some rows."""

    pieces: int
    n_heads: int
    scale: float
    q: np.ndarray
    kv: np.ndarray
    at: np.ndarray
    keep_mask: np.ndarray
    out: np.ndarray


attention_job_at = record_at(AttentionJob)


class Cached(NamedTuple):
    """The keys and values that some rows attend to, as ``KeyValueCache`` has them, except for the
    mask, which has two axes.

    Python passes them as a plain tuple, for the reason that ``LinearMap`` gives.
    """

    kv: np.ndarray
    at: np.ndarray
    keep_mask: np.ndarray


def cached_of(kv, at, keep_mask):
    """The fields of ``Cached`` as a plain tuple, from those of a ``KeyValueCache``."""
    return kv, at, ALL_KEPT if keep_mask is None else np.ascontiguousarray(keep_mask[:, 0, 0])


@kernel_of(reference.cached_attention, knows="causal scale dropout_rate")
def cached_attention(q, kv, at, settings, keep_mask, bias):
    R = len(q)
    H = settings.n_heads
    out = empty(q.shape, q.dtype)
    scale = q.dtype.type(scale_of(q.shape[1] // H, settings.scale))
    if bias is None:
        bias = np.empty((1, 1, 1, 0), q.dtype)
    else:
        bias = with_four_axes(bias, (R, H, 1, 1), at.shape[1])
    _attend(q, cached_of(kv, at, keep_mask), bias, H, scale, out, (0, R * H))
    if not np.isfinite(out).all():
        return NotImplemented  # the reference handles inf and NaN as in other attention
    return out


@kernel_of(reference.log_softmax_top_k)
def log_softmax_top_k(x, k):
    shape = len(x), min(k, x.shape[1])
    values = np.empty(shape, x.dtype)
    ids = np.empty(shape, np.int64)
    _top(x, values, ids)
    return values, ids


@inlined
def attend_together(board, piece_of_attention, q, cached, n_heads, scale, out):
    """Attention of some rows, whose heads are shared with the helpers that are awake."""
    kv, at, keep_mask = cached
    pieces = min(PIECES, len(out) * n_heads)
    job = AttentionJob(pieces, n_heads, scale, q, kv, at, keep_mask, out)
    share_pieces(board if out.size * at.shape[1] >= SHARED else 0, piece_of_attention, job)


@cache
def address_of_attention(dtype):
    """The address of ``compute(job, piece)``, which computes a piece of the heads of all rows."""

    def compute(address, piece):
        job = attention_job_at(address)
        q = array_at(job.q, dtype)
        kv = array_at(job.kv, dtype)
        at = array_at(job.at, np.int64)
        keep_mask = array_at(job.keep_mask, np.bool_)
        out = array_at(job.out, dtype)
        no_bias = np.empty((1, 1, 1, 0), dtype)
        n = len(out) * job.n_heads
        part = n * piece // job.pieces, n * (piece + 1) // job.pieces
        cached = Cached(kv, at, keep_mask)
        _attend(q, cached, no_bias, job.n_heads, dtype(job.scale), out, part)

    return address_of(compute, PIECE_SIGNATURE)


@inlined
def _attend(q, cached, bias, n_heads, scale, out, part):
    """Attention of a part of the heads, from the first to the last, which are counted over all
    rows.

    The rows of q begin with the queries, and may hold other numbers after them. A row of kv has the
    keys of all heads, then the values. ``n_shared`` neighbouring heads have the same ones. An axis
    of a mask or bias that has length 1 is for all: i % 1 is 0.
    """
    kv, at, keep_mask = cached
    S = at.shape[1]
    first_value = kv.shape[1] // 2
    K = out.shape[1] // n_heads
    n_shared = n_heads * K // first_value
    weights = np.empty((1, S), q.dtype)
    first, last = part
    for i in range(first, last):
        b = i // n_heads
        h = i % n_heads
        key_at = h // n_shared * K
        value_at = first_value + key_at
        keep = keep_mask[b % len(keep_mask)]
        added = bias[b % len(bias), h % bias.shape[1], 0]
        query = q[b, h * K : (h + 1) * K]
        _weigh(query, kv[:, key_at : key_at + K], at[b], keep, added, scale, weights)
        row = out[b, h * K : (h + 1) * K]
        row[:] = 0
        for s in range(S):
            if weights[0, s] != like(scale, 0):  # masked values may be NaN
                add_multiple(weights[0, s], kv[at[b, s], value_at : value_at + K], row)


@inlined
def _weigh(query, keys, at, keep, added, scale, weights):
    """softmax(scale · query · key + added) over the keys of one row; zeros if all are masked."""
    n = len(at)
    K = len(query)
    for s in range(n):
        key = contiguous(keys[at[s]])
        score = like(scale, 0)
        for j in range(K):
            score += query[j] * key[j]
        score = score * scale + added[s] if len(added) else score * scale
        weights[0, s] = score if keep[s % len(keep)] else -like(scale, np.inf)
    peak = largest(weights, 0, n)
    total = like(scale, 0)
    if peak == -np.inf:
        weights[0, :] = 0
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
    """Whether any entry of a block beats the worst of the best. All are counted, so that LLVM
    vectorises the loop.
    """
    n = 0
    for j in range(len(block)):
        n += _beats(block[j], worst)
    return n > 0


@kernel
def _top(x, values, ids):
    """The k best entries of each row, as log-probabilities, and their ids."""
    for i in range(len(x)):
        _find_best(x[i], values[i], ids[i])
        _to_log_probabilities(values[i], x[i])


@inlined
def _find_best(row, best, places):
    """Write the best entries of a row, the best first, and their places in it."""
    k = len(best)
    n_best = 0
    for start in range(0, len(row), ENTRIES_COMPARED):
        block = row[start : start + ENTRIES_COMPARED]
        if n_best == k and not _any_beats(block, best[k - 1]):
            continue
        for j in range(len(block)):
            if n_best < k or _beats(block[j], best[k - 1]):
                _insert(block[j], start + j, n_best, best, places)
                n_best = min(n_best + 1, k)


@inlined
def _insert(x, place, n_best, best, places):
    """Insert an entry among the best so far, in order; without room for it, the last is left
    out.
    """
    rank = min(n_best, len(best) - 1)
    while rank > 0 and _beats(x, best[rank - 1]):
        best[rank] = best[rank - 1]
        places[rank] = places[rank - 1]
        rank -= 1
    best[rank] = x
    places[rank] = place


@inlined
def _to_log_probabilities(best, row):
    """Turn the best entries into their log-probabilities by the softmax of the whole row."""
    peak = best[0]
    if peak == -np.inf:
        return
    # First: added to a large peak, the logarithm would lose its digits.
    for j in range(len(best)):
        best[j] -= peak
    total = like(peak, 0)
    for j in range(len(row)):
        total += exp_negative(row[j] - peak)
    log_total = like(peak, np.log(total))
    for j in range(len(best)):
        best[j] -= log_total
