"""Attention in tiles: the same result without a (T, S) array in memory (Dao et al. 2022, Dao 2023).

Softmax needs the sum over all keys before it can divide, so the division is done last: the keys are
processed block by block with a running maximum and a running sum, and the partial results are
rescaled whenever the maximum grows. The backward pass recomputes each tile of the weights from the
largest score of its rows and the sum of their exponentials. These two are kept apart: where scores
are large, their logarithm in one number, peak + log(sum), would have no digits left for the sum.
"""

import math
from typing import NamedTuple

import numpy as np

from npformer.arrays import Array, transpose
from npformer.operations.formula import backward_of, operation
from npformer.operations.settings import AttentionOptions
from npformer.reference.math.attention import capped_backward, scale_of, scores_of, summed_to
from npformer.reference.math.dropout import dropout_keep, kept_scale
from npformer.reference.math.masks import is_visible
from npformer.reference.math.product import product

BLOCK = 64  # number of queries, and of keys, in a tile


@operation(
    "q: ... T K>0, k: ... S K, v: ... S Kv, keep_mask: ~ ... T S mask, bias: ~ ... T S "
    "-> out: ... T Kv, peak: ... T wide, total: ... T wide",
    flops="2*N*T*S*(K+Kv)",
    options=AttentionOptions,
)
def flash_attention(
    q: Array,
    k: Array,
    v: Array,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    softcap: float | None = None,
    dropout_key: int | None = None,
) -> tuple[Array, Array, Array]:
    """The same as ``attention``, with the same arguments, and memory that grows with T + S instead
    of T · S.

    Returns
    -------
    peak, total
        For the backward pass, which makes the weights again: the largest score of each query, -inf
        if it may attend to no key, and Σ_s exp(score - peak). log Σ_s exp(score) is
        peak + log(total).

    >>> from npformer.reference import attention
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 2, 100, 8))
    >>> bool(np.allclose(flash_attention(q, k, v)[0], attention(q, k, v)[0], rtol=0, atol=1e-14))
    True
    """
    options = {"scale": scale, "softcap": softcap}
    T = q.shape[-2]
    S = k.shape[-2]
    dtype = _dtype(q, k, v, bias)
    out = np.zeros_like(q, shape=(*q.shape[:-1], v.shape[-1]), dtype=dtype)
    peaks = np.full_like(q, -np.inf, shape=q.shape[:-1], dtype=dtype)
    totals = np.zeros_like(peaks)

    for queries in blocks(T):
        peak = peaks[..., queries, None].real  # -inf before the first key
        total = totals[..., queries, None]  # Σ exp(score - peak) over the keys so far
        gathered = out[..., queries, :]  # Σ exp(score - peak) v
        for tile in tiles_of(queries, T, S, causal):
            scores = scores_tile(q, k, keep_mask, bias, causal, tile, **options)
            old_peak = peak
            peak = np.maximum(old_peak, scores.real.max(axis=-1, keepdims=True))
            shift = np.where(np.isneginf(peak), 0, peak)
            e = np.exp(scores - shift)
            shrink = np.exp(old_peak - shift)
            total = total * shrink + e.sum(axis=-1, keepdims=True)
            dropped = dropout_tile(e, tile, dropout_rate, dropout_key)
            gathered = gathered * shrink + product(dropped, v[..., tile.keys, :])
        out[..., queries, :] = gathered / np.where(total == 0, 1, total)
        peaks[..., queries] = peak[..., 0]
        totals[..., queries] = total[..., 0]
    return out, peaks, totals


@backward_of(flash_attention, flops="2*N*T*S*(3*K+2*Kv)")
def flash_attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    peak: Array,
    total: Array,
    keep_mask: Array | None = None,
    *,
    bias: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    softcap: float | None = None,
    dropout_key: int | None = None,
) -> tuple[Array, ...]:
    """The gradients (dq, dk, dv), and dbias if there is a bias, tile by tile, given the options of
    the forward pass.

    The row sum Σ_s dweights · weights of the softmax backward needs all keys, so there are two
    passes over the tiles of some queries. It equals Σ dout · out, which is known before the first
    tile, and which kernels use if there are several tiles of keys: their gradients of the scores of
    a query add up to 0 less exactly.

    Kernels with one tile of keys divide the row sum by the sum of the weights, which is 1 except
    for rounding. Here it is not divided: for thousands of keys with much in common, the error of dq
    is about a sixth larger.

    >>> from npformer.reference import attention, attention_backward
    >>> q, k, v, dout = np.random.default_rng(0).normal(size=(4, 100, 8))  # tiles of 64 and 36
    >>> saved = flash_attention(q, k, v, causal=True)
    >>> tiled = flash_attention_backward(dout, q, k, v, *saved, causal=True)
    >>> whole = attention_backward(dout, q, k, v, attention(q, k, v, causal=True)[1])
    >>> [bool(np.allclose(a, b, rtol=0, atol=1e-12)) for a, b in zip(tiled, whole, strict=True)]
    [True, True, True]
    """
    scale = scale_of(q.shape[-1], scale)
    options = {"scale": scale, "softcap": softcap}
    T = q.shape[-2]
    S = k.shape[-2]
    dtype = _dtype(dout, q, k, v, bias)
    dq = np.zeros_like(q, dtype=dtype)
    dk = np.zeros_like(k, dtype=dtype)
    dv = np.zeros_like(v, dtype=dtype)
    dbias = None if bias is None else np.zeros_like(bias, dtype=dtype)
    shift = np.where(np.isneginf(peak.real), 0, peak)[..., None]
    divisor = np.where(total == 0, 1, total)[..., None]

    def weigh(tile):
        """The weights of a tile and their gradients, 0 where a key is masked, even if it is NaN."""
        scores = scores_tile(q, k, keep_mask, bias, causal, tile, **options)
        weights = np.exp(scores - shift[..., tile.queries, :]) / divisor[..., tile.queries, :]
        dweights = dout[..., tile.queries, :] @ transpose(v[..., tile.keys, :])
        dweights = dropout_tile(dweights, tile, dropout_rate, dropout_key)
        return weights, np.where(weights == 0, 0, dweights)

    for queries in blocks(T):
        tiles = tiles_of(queries, T, S, causal)
        row_sum = np.zeros_like(dq[..., queries, :1])
        for tile in tiles:
            weights, dweights = weigh(tile)
            row_sum += (dweights * weights).sum(axis=-1, keepdims=True)

        for tile in tiles:
            keys = tile.keys
            weights, dweights = weigh(tile)
            dropped = dropout_tile(weights, tile, dropout_rate, dropout_key)
            dv[..., keys, :] += product(transpose(dropped), dout[..., queries, :])
            dscores = weights * (dweights - row_sum)
            if dbias is not None:
                dbias_tile = tile.of(dbias)
                dbias_tile += summed_to(dscores, dbias_tile.shape)
            if softcap is not None:
                before = scores_of(q[..., queries, :], k[..., keys, :], scale=scale)
                dscores = capped_backward(dscores, before, softcap)
            dq[..., queries, :] += product(dscores, k[..., keys, :]) * scale
            dk[..., keys, :] += product(transpose(dscores), q[..., queries, :]) * scale
    return (dq, dk, dv) if dbias is None else (dq, dk, dv, dbias)


class Tile(NamedTuple):
    """Some of the T queries of an attention, with some of its S keys."""

    queries: slice
    keys: slice
    T: int
    S: int

    def of(self, x):
        """The view of a mask or bias that covers the tile; its last two axes may have size 1 or be
        missing. None if there is none.
        """
        if x is None:
            return None
        view = x[...]
        if x.ndim > 0 and x.shape[-1] > 1:
            view = view[..., self.keys]
        if x.ndim > 1 and x.shape[-2] > 1:
            view = view[..., self.queries, :]
        return view

    def positions(self, like):
        """The positions of the queries, as a column, and those of the keys, as a row."""
        query = np.arange(self.queries.start, self.queries.stop, like=like)
        key = np.arange(self.keys.start, self.keys.stop, like=like)
        return query[:, None], key


def tiles_of(queries, T, S, causal):
    """The tiles of these queries, without those that the causal mask hides."""
    stop = queries.stop + S - T if causal else S
    return [Tile(queries, keys, T, S) for keys in blocks(S, stop)]


def blocks(length, stop=None):
    """Slices of size ``BLOCK`` that cover 0 ... ``stop``, the last one truncated at ``length``."""
    stop = length if stop is None else stop
    return [slice(start, min(start + BLOCK, length)) for start in range(0, stop, BLOCK)]


def scores_tile(q, k, keep_mask, bias, causal, tile, **options):
    """The scores of one tile, -inf where they are masked."""
    q_tile = q[..., tile.queries, :]
    k_tile = k[..., tile.keys, :]
    scores = scores_of(q_tile, k_tile, tile.of(keep_mask), bias=tile.of(bias), **options)
    if causal:
        query, key = tile.positions(like=k)
        scores = np.where(is_visible(query, key, tile.T, tile.S), scores, -np.inf)
    return scores


def dropout_tile(x, tile, rate, dropout_key):
    """``dropout`` of one tile: it drops the entries that ``dropout`` of the whole (..., T, S) array
    would drop.
    """
    if rate == 0:
        return x
    leading = x.shape[:-2]
    matrix = np.arange(math.prod(leading), like=x).reshape(leading)[..., None, None]
    query, key = tile.positions(like=x)
    index = (matrix * tile.T + query) * tile.S + key  # of the entry in the whole array, in C order
    keep = dropout_keep(index, rate, dropout_key)
    return np.where(keep, x * kept_scale(rate), 0)


def _dtype(*arrays):
    """The dtype of a result of these arrays, of which some may be None."""
    return np.result_type(*(x for x in arrays if x is not None))
