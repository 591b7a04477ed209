"""Attention that returns its weights: ``reference.attention`` and its backward pass.

BLAS computes the products. Mask and softmax are one kernel, which goes through each row of scores
while it is in the cache; the reference makes an array (…, T, S) at each step.
"""

import numpy as np

from npformer import reference
from npformer.arrays import as_rows, transpose
from npformer.cpu.attention_tiles import KNOWN, Tile, as_heads, kernel_options, weigh
from npformer.cpu.backend import kernel_of
from npformer.cpu.draws import dropout_arguments, is_kept
from npformer.cpu.jit import kernel
from npformer.cpu.kernels.dropout import dropped
from npformer.cpu.scalar import like
from npformer.kernels.shared import of_bias
from npformer.reference.math.attention import scale_of
from npformer.runtime.memory import empty


@kernel_of(reference.attention, as_it_lies="q k v", knows=KNOWN)
@np.errstate(invalid="ignore", under="ignore")  # masked entries may be NaN
def attention(q, k, v, keep_mask, bias, options, dropout_key):
    # Without a key, as these are the weights before dropout.
    without_dropout = kernel_options(q, k, keep_mask, bias, options, dropout_key=None)
    weights = _product(as_heads(q) * without_dropout.scale, transpose(as_heads(k)))
    _normalise(weights, without_dropout)
    out = _product(dropped(weights, options.dropout_rate, dropout_key), as_heads(v))
    if not _edges_are_finite(out):
        return NotImplemented  # the reference handles NaN or inf that the mask should hide
    return out.reshape(*q.shape[:-1], v.shape[-1]), weights.reshape(*q.shape[:-1], k.shape[-2])


@kernel_of(reference.attention_backward, as_it_lies="dout q k v", knows="scale dropout_rate")
@np.errstate(invalid="ignore", under="ignore")
def attention_backward(dout, q, k, v, weights, bias, options, dropout_key):
    q4, k4, v4, dout4, weights4 = map(as_heads, (q, k, v, dout, weights))
    dscores = _product(dout4, transpose(v4))
    dropout = dropout_arguments(options.dropout_rate, dropout_key, q.dtype)
    _differentiate(as_rows(weights), as_rows(dscores), dropout)
    dbias = () if bias is None else (of_bias(dscores, bias, q),)
    dscores *= q.dtype.type(scale_of(q.shape[-1], options.scale))
    dv = _product(transpose(dropped(weights4, options.dropout_rate, dropout_key)), dout4)
    dq = _product(dscores, k4)
    dk = _product(transpose(dscores), q4)
    if not all(map(_edges_are_finite, (dq, dk, dv))):
        return NotImplemented  # as above
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape), *dbias


def _product(a, b):
    return np.matmul(a, b, out=empty((*a.shape[:-1], b.shape[-1]), a.dtype))


def _edges_are_finite(product):
    """``edges_are_finite`` of all matrices."""
    return np.isfinite(product[..., 0]).all() and np.isfinite(product[..., 0, :]).all()


@kernel
def _normalise(scores, options):
    """Turn scores into weights, in place."""
    B, H, T, S = scores.shape
    peak = np.empty(T, scores.dtype)
    total = np.empty(T, scores.dtype)
    zero = like(options.scale, 0)
    for b in range(B):
        for h in range(H):
            head = scores[b, h]
            peak[:] = -np.inf
            total[:] = 0
            weigh(head, Tile(b, h, 0, 0, T, S, H, T, S), False, head, peak, total, options)
            for t in range(T):
                inverse_total = like(zero, 1) / total[t] if total[t] != zero else zero
                for s in range(S):
                    head[t, s] *= inverse_total


@kernel
def _differentiate(weights, dweights, dropout):
    """Turn rows of gradients of the weights after dropout into gradients of the scores, in
    place.
    """
    draw, kept_scale = dropout
    n, S = weights.shape
    zero = like(kept_scale, 0)
    for i in range(n):
        row = weights[i]
        drow = dweights[i]
        total = zero
        for s in range(S):
            kept = row[s] != zero and is_kept(i * S + s, draw)
            drow[s] = drow[s] * kept_scale if kept else zero
            total += drow[s] * row[s]
        for s in range(S):
            drow[s] = row[s] * (drow[s] - total)
