"""Attention in tiles: the same numbers without ever holding a (T, S) array (Dao et al. 2022, Dao 2023).

Softmax needs the sum over all keys before it can divide. The trick is to divide last: go through the
keys block by block with a running maximum and a running sum, and rescale what was gathered so far
whenever the maximum grows. The backward pass recomputes each tile of the weights from the row's
log-sum-exp, which is all that is kept besides q, k, v and out.
"""

import math

from npformer.reference.arrays import Array, namespace, narrow, quiet, transpose, widen
from npformer.reference.attention import default_scale
from npformer.reference.checks import check_attention, check_shape
from npformer.reference.dropout import dropout_keep, kept_scale
from npformer.reference.product import product

BLOCK = 64  # queries and keys in a tile


@quiet
def flash_attention(
    q: Array,
    k: Array,
    v: Array,
    keep_mask: Array | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    key: int | None = None,
) -> tuple[Array, Array]:
    """What ``attention`` computes, in memory that grows with T + S instead of T · S.

    Parameters
    ----------
    q, k, v, keep_mask, causal, scale, dropout_rate, key
        As for ``attention``.

    Returns
    -------
    out : (..., T, Kv)
    logsumexp : (..., T)
        log Σ_s exp(score), -inf for a query that may attend to nothing; float32 for half precision.

    Examples
    --------
    >>> import numpy as np
    >>> from npformer.reference import attention
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 2, 100, 8))
    >>> bool(np.allclose(flash_attention(q, k, v)[0], attention(q, k, v)[0], rtol=0, atol=1e-14))
    True
    """
    xp = namespace(q=q, k=k, v=v)
    check_attention(q, k, v, keep_mask, dropout_rate, key)
    scaled_q = widen(q) * default_scale(q, scale)
    T, S = q.shape[-2], k.shape[-2]
    dtype = xp.result_type(scaled_q, k, v)
    out = xp.zeros((*q.shape[:-1], v.shape[-1]), dtype)
    logsumexp = xp.full(q.shape[:-1], -xp.inf, dtype)

    for queries in blocks(T):
        peak = xp.full((*q.shape[:-2], queries.stop - queries.start, 1), -xp.inf, dtype).real
        total = xp.zeros(peak.shape, dtype)
        gathered = xp.zeros((*peak.shape[:-1], v.shape[-1]), dtype)
        for keys in blocks(S, stop=queries.stop + S - T if causal else S):
            scores = scores_tile(scaled_q, k, keep_mask, causal, queries, keys)
            old_peak, peak = peak, xp.maximum(peak, scores.real.max(axis=-1, keepdims=True))
            shift = xp.where(xp.isneginf(peak), 0, peak)
            e = xp.exp(scores - shift)
            shrink = xp.exp(old_peak - shift)
            total = total * shrink + e.sum(axis=-1, keepdims=True)
            dropped = dropout_tile(e, T, S, queries, keys, dropout_rate, key)
            gathered = gathered * shrink + product(dropped, v[..., keys, :])
        seen = total != 0
        divisor = xp.where(seen, total, 1)
        out[..., queries, :] = gathered / divisor
        logsumexp[..., queries] = xp.where(seen, peak + xp.log(divisor), -xp.inf)[..., 0]
    return narrow(out, q), logsumexp


@quiet
def flash_attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    logsumexp: Array,
    keep_mask: Array | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    key: int | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients (dq, dk, dv), tile by tile; the options have to be those of the forward pass.

    The row sum Σ_s dweights · weights of the softmax backward would need all keys at once, but it
    equals Σ dout · out, which is known before the first tile.
    """
    xp = namespace(dout=dout, q=q, k=k, v=v, out=out, logsumexp=logsumexp)
    check_attention(q, k, v, keep_mask, dropout_rate, key)
    check_shape(dout=(dout, (*q.shape[:-1], v.shape[-1])), out=(out, dout.shape), logsumexp=(logsumexp, q.shape[:-1]))
    scale = default_scale(q, scale)
    T, S = q.shape[-2], k.shape[-2]
    scaled_q, wide_dout = widen(q) * scale, widen(dout)
    row_sum = (wide_dout * out).sum(axis=-1, keepdims=True)
    used = (dout != 0).any(axis=-1, keepdims=True)  # a query without gradient passes none, even if it holds NaN
    shift = xp.where(xp.isneginf(logsumexp.real), 0, logsumexp)[..., None]
    dtype = xp.result_type(scaled_q, k, v, wide_dout)
    dq, dk, dv = (xp.zeros(x.shape, dtype) for x in (q, k, v))

    for queries in blocks(T):
        for keys in blocks(S, stop=queries.stop + S - T if causal else S):
            scores = scores_tile(scaled_q, k, keep_mask, causal, queries, keys)
            weights = xp.exp(scores - shift[..., queries, :])
            dropped = dropout_tile(weights, T, S, queries, keys, dropout_rate, key)
            dv[..., keys, :] += product(transpose(dropped), wide_dout[..., queries, :])

            dweights = wide_dout[..., queries, :] @ transpose(v[..., keys, :])
            dweights = dropout_tile(dweights, T, S, queries, keys, dropout_rate, key)
            dscores = weights * (dweights - row_sum[..., queries, :])
            dscores = xp.where((weights != 0) & used[..., queries, :], dscores, 0)
            dq[..., queries, :] += product(dscores, k[..., keys, :]) * scale
            dk[..., keys, :] += product(transpose(dscores), scaled_q[..., queries, :])
    return narrow(dq, q), narrow(dk, k), narrow(dv, v)


def blocks(length, stop=None):
    """Slices of ``BLOCK`` that cover 0 ... ``stop``, the last one cut off at ``length``."""
    stop = length if stop is None else stop
    return [slice(start, min(start + BLOCK, length)) for start in range(0, stop, BLOCK)]


def scores_tile(scaled_q, k, keep_mask, causal, queries, keys):
    """The scores of some queries with some keys, -inf where a mask forbids them."""
    xp = namespace(scaled_q=scaled_q)
    scores = scaled_q[..., queries, :] @ transpose(k[..., keys, :])
    if keep_mask is not None:
        scores = xp.where(mask_tile(keep_mask, queries, keys), scores, -xp.inf)
    if causal:
        last_seen = xp.arange(queries.start, queries.stop)[:, None] + k.shape[-2] - scaled_q.shape[-2]
        scores = xp.where(xp.arange(keys.start, keys.stop) <= last_seen, scores, -xp.inf)
    return scores


def mask_tile(keep_mask, queries, keys):
    """The part of a mask that covers the tile, where its last two axes may be 1 or missing."""
    if keep_mask.ndim > 0 and keep_mask.shape[-1] > 1:
        keep_mask = keep_mask[..., keys]
    if keep_mask.ndim > 1 and keep_mask.shape[-2] > 1:
        keep_mask = keep_mask[..., queries, :]
    return keep_mask


def dropout_tile(x, T, S, queries, keys, rate, key):
    """What ``dropout`` would do to this tile of a (..., T, S) array, from the elements' places in the whole."""
    if rate == 0:
        return x
    xp = namespace(x=x)
    matrix = xp.arange(math.prod(x.shape[:-2])).reshape(x.shape[:-2])[..., None, None]
    query, key_place = xp.arange(queries.start, queries.stop)[:, None], xp.arange(keys.start, keys.stop)
    index = (matrix * T + query) * S + key_place
    return xp.where(dropout_keep(index, rate, key), x * kept_scale(rate), 0)
