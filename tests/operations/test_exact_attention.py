"""Attention in tiles is as exact as attention, which holds all weights.

It is so where scores are large, and where nothing moves.

The exact result is what the reference computes in NumPy's long double.
"""

import numpy as np
import pytest
from on_gpu import ON_GPU, smaller
from oracles import assert_close
from results import BACKENDS

from npformer import reference

pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than float64 here"
)
T = 7
HUGE = np.float32(-1e9)  # added to scores, it leaves them no digits


def huge_where(is_huge):
    return {"bias": np.where(is_huge, HUGE, np.float32(0))}


def one_visible_key(S, rows=T):
    keep_mask = np.ones((T, S), bool)
    keep_mask[:rows] = np.arange(S) == np.random.default_rng(0).integers(0, S, (rows, 1))
    return {"keep_mask": keep_mask}


# Name: the options for S keys, and the factors of the queries and the keys.
HARD = {
    "standard normal": (lambda S: {}, 1, 1),
    "a bias of -1e9 on one row": (
        lambda S: huge_where(np.arange(T)[:, None] == np.full(S, 2)),
        1,
        1,
    ),
    "a bias of -1e9 on all": (lambda S: huge_where(np.ones(S)), 1, 1),
    "a bias of -1e9 on two thirds": (lambda S: huge_where(np.arange(S) % 3), 1, 1),
    "scores of 1e4": (lambda S: {}, 1e4, 1),
    "scores of 1e4 and keys of 100": (lambda S: {}, 1e2, 1e2),
    "one visible key": (one_visible_key, 1, 1),
    "one visible key or all": (lambda S: one_visible_key(S, rows=3), 1, 1),
    "causal": (lambda S: {"causal": True}, 1, 1),
}


def errors(actual, exact):
    """The largest error of the output, and of each gradient."""
    return [float(np.abs(x - wanted).max()) for x, wanted in zip(actual, exact, strict=True)]


def whole(ops, dout, q, k, v, keep_mask=None, bias=None, causal=False):
    out, weights = ops.attention(q, k, v, keep_mask, bias=bias, causal=causal)
    return out, *ops.attention_backward(dout, q, k, v, weights, bias=bias)


def tiled(ops, dout, q, k, v, keep_mask=None, return_peak=False, **options):
    arrays = q, k, v, keep_mask
    out, logsumexp, *peak = ops.flash_attention(*arrays, **options, return_peak=return_peak)
    options |= {"peak": peak[0]} if return_peak else {}
    backward = ops.flash_attention_backward
    return out, *backward(dout, q, k, v, out, logsumexp, keep_mask, **options)


@pytest.mark.parametrize("ops", BACKENDS)
@pytest.mark.parametrize("S", [2, 60, 200, 300, 5000])
@pytest.mark.parametrize("name", HARD)
def test_tiles_are_four_times_as_far_off_as_attention_at_most(ops, name, S):
    """Where a query sees one key, the gradients of queries and keys are exactly 0 in both."""
    S = smaller(S) if ops is ON_GPU else S
    make_options, of_queries, of_keys = HARD[name]
    rng = np.random.default_rng(S)
    options = make_options(S)
    dout, q, k, v = (
        rng.standard_normal((1, 2, n, K)).astype("float32")
        for n, K in ((T, 12), (T, 16), (S, 16), (S, 12))
    )
    arrays = dout, np.float32(of_queries) * q, np.float32(of_keys) * k, v
    exact = whole(reference, *(x.astype(np.longdouble) for x in arrays), **options)
    bounds = [4 * error for error in errors(whole(ops, *arrays, **options), exact)]
    for return_peak in (False, True):
        found = errors(tiled(ops, *arrays, **options, return_peak=return_peak), exact)
        assert (np.array(found) <= bounds).all(), (return_peak, found, bounds)


def test_logsumexp_is_the_sum_of_both_parts():
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 70, 5))
    _, logsumexp = reference.flash_attention(q, k, v, causal=True)
    _, log_total, peak = reference.flash_attention(q, k, v, causal=True, return_peak=True)
    scores = reference.attention(q, k, v, causal=True)[1]
    assert_close(log_total + peak, logsumexp, 1e-14)
    # the weight of the largest score
    np.testing.assert_allclose(scores.max(axis=-1), np.exp(-log_total), rtol=1e-13)
