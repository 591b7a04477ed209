"""Attention in tiles: matrix products by BLAS, and between them one pass over a tile of scores in the cache.

A tile holds some queries and some keys of one head, or of as many heads and sequences as fit. The kernels work
in place: scores become weights, and in the backward pass gradients of the weights become gradients of the scores.
Keys a causal mask hides are not even multiplied, but for those of the tile on the diagonal.
"""

import math
from typing import NamedTuple

import numpy as np

from npformer import reference
from npformer.cpu.arrays import edges_are_finite, suit
from npformer.cpu.dropout import drawing
from npformer.cpu.jit import kernel
from npformer.cpu.memory import empty
from npformer.cpu.scalar import exp, is_kept, largest, like
from npformer.reference.arrays import quiet, transpose
from npformer.reference.attention import default_scale
from npformer.reference.checks import check_attention
from npformer.threads import in_parallel

QUERIES, KEYS = 256, 512  # in a tile: 512 KB of float32 scores, half of a core's second cache
SCORES = QUERIES * KEYS
NO_MASK = np.ones((1, 1, 1, 0), bool)


class Options(NamedTuple):
    """What the kernels need to know besides arrays; ``draw`` and ``kept_scale`` are those of dropout."""

    keep_mask: np.ndarray  # (1 or B, 1 or H, 1 or T, S), or NO_MASK
    causal: bool
    scale: float
    draw: tuple
    kept_scale: float


def flash_attention(q, k, v, keep_mask=None, *, causal=False, scale=None, dropout_rate=0.0, key=None):
    """As ``reference.flash_attention``."""
    keywords = {"causal": causal, "scale": scale, "dropout_rate": dropout_rate, "key": key}
    if suits(q, k, v, scale):
        check_attention(q, k, v, keep_mask, dropout_rate, key)
        options = options_for(q, k, keep_mask, **keywords)
        result = attend(as_heads(q), as_heads(k), as_heads(v), options)
        if result is not None:
            out, logsumexp = result
            return out.swapaxes(1, 2).reshape(*q.shape[:-1], v.shape[-1]), logsumexp.reshape(q.shape[:-1])
    return reference.flash_attention(q, k, v, keep_mask, **keywords)


def flash_attention_backward(
    dout, q, k, v, out, logsumexp, keep_mask=None, *, causal=False, scale=None, dropout_rate=0.0, key=None
):
    """As ``reference.flash_attention_backward``."""
    keywords = {"causal": causal, "scale": scale, "dropout_rate": dropout_rate, "key": key}
    fits = suits(q, k, v, scale) and suit(q, dout, out, logsumexp) and dout.shape == out.shape
    if fits and dout.shape == (*q.shape[:-1], v.shape[-1]) and logsumexp.shape == q.shape[:-1]:
        check_attention(q, k, v, keep_mask, dropout_rate, key)
        options = options_for(q, k, keep_mask, **keywords)
        gradients = tuple(empty(as_heads(x).shape, x.dtype) for x in (q, k, v))
        saved = (np.ascontiguousarray(as_heads(x).swapaxes(1, 2)) for x in (dout, out))
        logsumexp_of_heads = np.ascontiguousarray(as_heads(logsumexp[..., None])[..., 0])
        if attend_backward(*saved, as_heads(q), as_heads(k), as_heads(v), logsumexp_of_heads, options, gradients):
            return tuple(gradient.reshape(x.shape) for gradient, x in zip(gradients, (q, k, v), strict=True))
    return reference.flash_attention_backward(dout, q, k, v, out, logsumexp, keep_mask, **keywords)


def suits(q, k, v, scale=None):
    """Whether the kernels can take these; what is empty or has an unusual scale is left to the reference."""
    return suit(q, k, v) and min(q.ndim, k.ndim, v.ndim) > 1 and min(q.size, k.size, v.size) > 0 and _positive(scale)


def _positive(scale):
    return scale is None or (isinstance(scale, (float, int)) and 0 < scale < math.inf)


def as_heads(x):
    """(..., T, K) with exactly two axes in front, (B, H, T, K)."""
    if x.ndim == 4:
        return x
    return x[(None,) * (4 - x.ndim)] if x.ndim < 4 else x.reshape(-1, *x.shape[-3:])


def options_for(q, k, keep_mask, causal, scale, dropout_rate, key):
    """The options in the form that the kernels want."""
    number = q.dtype.type
    if keep_mask is None or keep_mask.all():
        mask = NO_MASK
    else:
        mask = keep_mask[(None,) * max(4 - keep_mask.ndim, 0)]
        if q.ndim > 4:
            mask = as_heads(np.broadcast_to(keep_mask, (*q.shape[:-1], k.shape[-2])))
        mask = np.ascontiguousarray(np.broadcast_to(mask, (*mask.shape[:-1], k.shape[-2])))
    return Options(mask, causal, number(default_scale(q, scale)), *drawing(dropout_rate, key, q.dtype))


def attend(q, k, v, options):
    """(out (B, T, H, Kv), logsumexp (B, H, T)), or None if NaN or inf got where the mask should have kept it out."""
    B, H, T, _ = q.shape
    S, Kv = v.shape[-2:]
    out = empty((B, T, H, Kv), q.dtype)
    peak, total = np.full((B, H, T), -np.inf, q.dtype), np.zeros((B, H, T), q.dtype)

    def work(part):
        b, h = part
        for queries in _blocks(T, QUERIES):
            for keys in _seen(queries, T, S, options.causal):
                first = (b.start, h.start, queries.start, keys.start)
                scores = batched_product(q[b, h, queries], transpose(k[b, h, keys]))
                shrink = np.empty(scores.shape[:-1], scores.dtype)
                _weigh(scores, first, (H, T, S), peak, total, shrink, options)
                if keys.start == 0:
                    _write_product(scores, v[b, h, keys], out[b, queries, h].swapaxes(1, 2))
                else:
                    _gather(out, first, shrink, batched_product(scores, v[b, h, keys]))

    in_parallel(work, _parts(B, H, T, S))
    return (out, peak) if _divide(out, peak, total, options.kept_scale) else None


def attend_backward(dout, out, q, k, v, logsumexp, options, gradients):
    """Write dq, dk and dv; False if NaN or inf got where the mask should have kept it out."""
    B, H, T, _ = q.shape
    S = v.shape[-2]
    row_sums = np.empty((B, H, T), q.dtype)
    _sum_products(dout, out, row_sums)
    dq, dk, dv = gradients
    once = T <= QUERIES  # then no key meets a second tile of queries
    for gradient in (dq,) if once else gradients:
        gradient.fill(0)

    def work(part):
        b, h = part
        for queries in _blocks(T, QUERIES):
            q_tile, dout_tile = q[b, h, queries], dout[b, queries, h].swapaxes(1, 2)
            for keys in _seen(queries, T, S, options.causal):
                first = (b.start, h.start, queries.start, keys.start)
                k_tile, v_tile = k[b, h, keys], v[b, h, keys]
                scores, dweights = (
                    batched_product(q_tile, transpose(k_tile)),
                    batched_product(dout_tile, transpose(v_tile)),
                )
                _differentiate(scores, dweights, first, (H, T, S), logsumexp, row_sums, options)
                weights, dscores = scores, dweights  # what they are now
                _write_product(transpose(weights), dout_tile, dv[b, h, keys], add=not once)
                _write_product(transpose(dscores), q_tile, dk[b, h, keys], add=not once)
                _write_product(dscores, k_tile, dq[b, h, queries], add=keys.start > 0)

    in_parallel(work, _parts(B, H, T, S))
    return all(edges_are_finite(gradient) for gradient in gradients)


def _parts(B, H, T, S):
    """Which (sequences, heads) go into a tile together, as slices."""
    n = max(1, SCORES // (min(T, QUERIES) * min(S, KEYS)))
    return [(b, h) for b in _blocks(B, max(1, n // H)) for h in _blocks(H, min(n, H))]


def _blocks(stop, size):
    return [slice(start, min(start + size, stop)) for start in range(0, stop, size)]


def _seen(queries, T, S, causal):
    """The blocks of keys that the last of these queries may attend to."""
    return _blocks(min(S, max(0, queries.stop + S - T)) if causal else S, KEYS)


@quiet
def batched_product(a, b):
    """a @ b of stacks of matrices; views need no copy."""
    return np.matmul(a, b, out=empty((*a.shape[:-1], b.shape[-1]), a.dtype))


@quiet
def _write_product(a, b, out, add=False):
    if add:
        out += batched_product(a, b)
    else:
        np.matmul(a, b, out=out)


@kernel
def hide(row, b, h, t, first_key, mask):
    """-inf where the mask (1 or B, 1 or H, 1 or T, S) forbids."""
    allowed = mask[b if len(mask) > 1 else 0, h if mask.shape[1] > 1 else 0, t if mask.shape[2] > 1 else 0]
    for s in range(row.size):
        row[s] = row[s] if allowed[first_key + s] else like(row[s], -np.inf)


@kernel
def n_visible(n_keys, first_key, t, T, S, causal):
    """How many of the keys from ``first_key`` on query t may see."""
    return min(n_keys, max(0, t + S - T + 1 - first_key)) if causal else n_keys


@kernel
def _weigh(scores, first, lengths, peak, total, shrink, options):
    """In place: scores become exp(score - peak) after dropout, 0 where masked; peak and total as in the reference."""
    B, H, n_queries, n_keys = scores.shape
    n_heads, T, S = lengths
    masked, scale, draw = options.keep_mask.size > 0, options.scale, options.draw
    for i in range(B):
        for j in range(H):
            for m in range(n_queries):
                b, h, t = first[0] + i, first[1] + j, first[2] + m
                row, shrink[i, j, m] = scores[i, j, m], like(scale, 1)
                n = n_visible(n_keys, first[3], t, T, S, options.causal)
                row[n:] = like(scale, 0)
                if n == 0:
                    continue
                row = row[:n]
                if masked:
                    hide(row, b, h, t, first[3], options.keep_mask)
                new_peak = largest(row, n) * scale
                new_peak = peak[b, h, t] if new_peak <= peak[b, h, t] else new_peak  # NaN, if it is
                if new_peak == -np.inf:
                    row[:] = like(scale, 0)
                    continue
                row_total = like(scale, 0)
                start = ((b * n_heads + h) * T + t) * S + first[3]
                if draw[0] > 0:
                    for s in range(n):
                        e = exp(row[s] * scale - new_peak)
                        row_total += e
                        row[s] = e if is_kept(start + s, draw) else like(scale, 0)
                else:
                    for s in range(n):
                        row[s] = exp(row[s] * scale - new_peak)
                        row_total += row[s]
                shrink[i, j, m] = exp(peak[b, h, t] - new_peak)
                total[b, h, t] = total[b, h, t] * shrink[i, j, m] + row_total
                peak[b, h, t] = new_peak


@kernel
def _gather(out, first, shrink, more):
    """out = out · shrink + more, in the tile."""
    B, H, n_queries, K = more.shape
    for i in range(B):
        for m in range(n_queries):
            for j in range(H):
                row = out[first[0] + i, first[2] + m, first[1] + j]
                for c in range(K):
                    row[c] = row[c] * shrink[i, j, m] + more[i, j, m, c]


@kernel
def _divide(out, peak, total, kept_scale):
    """out /= total, and peak becomes log Σ exp(score); whether all is finite."""
    B, T, H, K = out.shape
    n_wrong = 0
    for b in range(B):
        for t in range(T):
            for h in range(H):
                row = out[b, t, h]
                if total[b, h, t] == 0:
                    row[:] = like(kept_scale, 0)
                    continue
                share = kept_scale / total[b, h, t]
                for c in range(K):
                    row[c] *= share
                    n_wrong += not np.isfinite(row[c])
                peak[b, h, t] += like(kept_scale, math.log(total[b, h, t]))
    return n_wrong == 0


@kernel
def _sum_products(dout, out, row_sums):
    """Σ dout · out of each query and head: what the softmax backward subtracts."""
    B, T, H, K = out.shape
    for b in range(B):
        for t in range(T):
            for h in range(H):
                total = like(out[b, t, h, 0], 0)
                for c in range(K):
                    total += dout[b, t, h, c] * out[b, t, h, c]
                row_sums[b, h, t] = total


@kernel
def _differentiate(scores, dweights, first, lengths, logsumexp, row_sums, options):
    """In place: scores become the weights after dropout, dweights become dscores · scale."""
    B, H, n_queries, n_keys = scores.shape
    n_heads, T, S = lengths
    masked, scale, draw = options.keep_mask.size > 0, options.scale, options.draw
    for i in range(B):
        for j in range(H):
            for m in range(n_queries):
                b, h, t = first[0] + i, first[1] + j, first[2] + m
                row, drow = scores[i, j, m], dweights[i, j, m]
                n = n_visible(n_keys, first[3], t, T, S, options.causal)
                n = 0 if logsumexp[b, h, t] == -np.inf else n
                row[n:] = like(scale, 0)
                drow[n:] = like(scale, 0)
                row = row[:n]
                if masked:
                    hide(row, b, h, t, first[3], options.keep_mask)
                shift, row_sum = logsumexp[b, h, t], row_sums[b, h, t]
                start = ((b * n_heads + h) * T + t) * S + first[3]
                for s in range(n):
                    factor = options.kept_scale if is_kept(start + s, draw) else like(scale, 0)
                    weight = exp(row[s] * scale - shift)
                    dscore = weight * (drow[s] * factor - row_sum) * scale
                    row[s] = weight * factor
                    drow[s] = dscore if weight != like(scale, 0) else like(scale, 0)
