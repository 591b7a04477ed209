"""Attention in tiles gives the same numbers as attention, and never holds a (T, S) array."""

import sys
import tracemalloc

import numpy as np
import pytest
from on_gpu import ON_GPU, smaller
from oracles import assert_all_close, assert_close
from results import BOTH_ATTENTIONS, EVERY_KERNEL, assert_equal_within, attend, normal

import npformer as nf
from npformer import reference as npf
from npformer.reference.math.flash_attention import BLOCK

B, H, K, KV = 2, 3, 11, 13


def inputs(n_queries, n_keys, batch=(B, H)):
    shapes = [(n_queries, K), (n_keys, K), (n_keys, KV), (n_queries, KV)]
    return [normal(*batch, *shape, seed=seed) for seed, shape in enumerate(shapes)]


LENGTHS = [(n, n) for n in (1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 131)]
LENGTHS += [(1, 131), (131, 1), (63, 129), (129, 63), (65, 66), (200, 67)]
MASKS = [(71,), (1,), (1, 1), (67, 71), (1, 71), (67, 1)]
MASKS += [(B, 1, 1, 71), (B, 1, 67, 1), (H, 1, 71), (B, H, 67, 71), ()]
DROPOUT = {"dropout_rate": 0.3, "dropout_key": 7}
CALLS = [(*lengths, x) for lengths in LENGTHS for x in ({}, DROPOUT, {"scale": 0.7})]
CALLS += [(67, 71, {"keep_mask": np.asarray(normal(*shape) > -0.3)}) for shape in MASKS]
CALLS += [(67, 71, {"keep_mask": np.zeros(x, bool)}) for x in [(), (1,), (1, 1), (67, 1)]]
some = normal(B, H, 67, 131) > 0
some[:, :, 5] = False
CALLS += [(67, 131, {"keep_mask": some, "scale": 0.7, **DROPOUT})]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_the_same_as_attention(call, causal):
    """Lengths around the tile, more queries or more keys, masks of every shape, and all at once."""
    n_queries, n_keys, options = call
    assert_same_as_attention(*inputs(n_queries, n_keys), causal=causal, **options)


def assert_same_as_attention(*arrays, **options):
    results = attend("flash_attention", *arrays, **options)
    assert_all_close(results, attend("attention", *arrays, **options))


def test_large_scores_and_a_peak_that_grows_from_tile_to_tile():
    q, k, v, dout = inputs(67, 131)
    assert_same_as_attention(300 * q, 300 * k, v, dout / 300)  # scores of a thousand
    q, k, v, dout = inputs(3, 5 * BLOCK)
    k += np.arange(5 * BLOCK)[:, None] * q.mean()
    assert_same_as_attention(q, k, v, dout)


@EVERY_KERNEL
@BOTH_ATTENTIONS
def test_the_largest_of_enormous_scores_is_the_peak(ops, name):
    for seed in range(20):  # each alone: a head with inf would send all heads to the reference
        q, k, v = (normal(1, 1, n, 6, seed=3 * seed + n).astype(np.float32) for n in (1, 2, 3))
        q = 1e5 * q
        k = np.concatenate([1e5 * k, -1e5 * k[:, :, :1]], axis=2)
        out, _ = getattr(ops, name)(q, k, v)
        assert_close(out, getattr(npf, name)(q, k, v)[0])


@EVERY_KERNEL
def test_nan_of_a_masked_key_changes_no_weight_of_enormous_scores(ops):
    """The kernel leaves these gradients to the reference,
    whose scores have to be rounded as its own.
    """
    q, k, v, dout = (normal(1, 1, n, 24, seed=n).astype(np.float32) for n in (6, 5, 5, 6))
    keep_mask = np.array([1, 1, 1, 1, 0], bool)
    q = 1e8 * q
    gradients_of_v = []
    for hidden in (0, np.nan):
        k[..., 4, :] = hidden
        saved = ops.flash_attention(q, k, v, keep_mask)
        gradients = ops.flash_attention_backward(dout, q, k, v, *saved, keep_mask)
        gradients_of_v.append(gradients[2:])
    assert_equal_within(100, "float32", *gradients_of_v)


def of_both_passes(ops, dout, saved, q, k, v, keep_mask=None, **options):
    """The results of a backend, and its gradients of what the reference saved."""
    arrays = q, k, v, keep_mask
    gradients = ops.flash_attention_backward(dout, q, k, v, *saved, keep_mask, **options)
    return ops.flash_attention(*arrays, **options), gradients


def assert_as_reference(ops, dout, q, k, v, keep_mask=None, bounds=(16, 32), **options):
    """Both passes of a backend and of the reference, within so many rounding errors."""
    saved = npf.flash_attention(q, k, v, keep_mask, **options)
    arrays = dout, saved, q, k, v, keep_mask
    passes = (of_both_passes(x, *arrays, **options) for x in (ops, npf))
    for bound, actual, expected in zip(bounds, *passes, strict=True):
        assert_equal_within(bound, str(q.dtype), actual, expected)


@EVERY_KERNEL
@pytest.mark.parametrize(
    ("n_queries", "n_keys", "causal", "dtype"),
    [
        (300, 1100, True, "float32"),
        (520, 270, False, "float64"),
        (257, 600, True, "float64"),
        (1, 600, False, "float32"),
    ],
)
def test_kernels_over_several_tiles(ops, n_queries, n_keys, causal, dtype):
    T, S = (smaller(n) if ops is ON_GPU else n for n in (n_queries, n_keys))
    q, k, v, dout = (x.astype(dtype) for x in inputs(T, S))
    options = {"causal": causal, "dropout_rate": 0.1, "dropout_key": 5}
    for shape in ((B, 1, 1, S), (T, S), (H, T, 1)):
        assert_as_reference(ops, dout, q, k, v, normal(*shape) > -0.8, **options)


@EVERY_KERNEL
@pytest.mark.parametrize("name", ["q", "dout"])
def test_one_nan_of_a_query_that_sees_nothing_beside_hidden_tiles(ops, name):
    """The first keys are hidden from all queries,
    so that the first row of the gradients does not show the NaN.
    """
    T = 2
    S = smaller(300) if ops is ON_GPU else 300
    q, k, v, dout = (x.astype("float32") for x in inputs(T, S, batch=(1, 1)))
    keep_mask = np.zeros((T, S), bool)
    keep_mask[1, S - 5 :] = True
    {"q": q, "dout": dout}[name][..., 0, 3] = np.nan
    saved = npf.flash_attention(q, k, v, keep_mask)
    gradients = [x.flash_attention_backward(dout, q, k, v, *saved, keep_mask) for x in (ops, npf)]
    assert np.isfinite(gradients[1][2]).all()
    assert_equal_within(32, "float32", *gradients)


@EVERY_KERNEL
def test_one_nan_in_a_masked_key_of_a_later_tile(ops):
    q, k, v, dout = (x.astype("float32") for x in inputs(600, 600, batch=(1, 1)))
    options = {"keep_mask": np.arange(600) < 400, "causal": True}
    saved = npf.flash_attention(q, k, v, **options)
    expected = npf.flash_attention_backward(dout, q, k, v, *saved, **options)
    k[0, 0, 450, 3] = np.nan
    actual = ops.flash_attention_backward(dout, q, k, v, *saved, **options)
    assert_equal_within(32, "float32", actual, expected)


@EVERY_KERNEL
def test_rows_that_are_one_row(ops):
    """The rows of q and v are broadcast, with a stride of 0."""
    row = normal(40, 8).astype("float32")
    q = np.broadcast_to(row[:1], row.shape)
    expected = npf.flash_attention(q.copy(), row, q.copy())
    assert_equal_within(16, "float32", ops.flash_attention(q, row, q), expected)


def peak_bytes(f):
    tracemalloc.start()
    f()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_no_array_of_all_scores_is_ever_held():
    T, S = 1024, 1017
    q, k, v = normal(T, 2), normal(S, 2, seed=1), normal(S, 2, seed=2)

    def forward_backward():
        options = {"causal": True, **DROPOUT}
        out, logsumexp = npf.flash_attention(q, k, v, **options)
        npf.flash_attention_backward(out, q, k, v, out, logsumexp, **options)

    # a boolean (T, S) array alone would take T * S bytes
    assert peak_bytes(forward_backward) < T * S
    # the measurement sees what attention holds
    assert peak_bytes(lambda: npf.attention(q, k, v)) > 8 * T * S


@pytest.mark.parametrize("longer", [0, 64, -64])
def test_tiles_that_the_causal_mask_hides_are_skipped(longer, monkeypatch):
    """Forward and backward: every tile that holds a visible score is computed, and no other."""
    T, S = 192, 192 + longer
    expected = [(t, s) for t in range(0, T, 64) for s in range(0, S, 64) if s <= t + 63 + S - T]
    computed = []

    def spy(q, k, keep_mask, bias, causal, queries, keys, **options):
        computed.append((queries.start, keys.start))
        return scores_tile(q, k, keep_mask, bias, causal, queries, keys, **options)

    module = sys.modules["npformer.reference.math.flash_attention"]
    scores_tile = module.scores_tile
    monkeypatch.setattr(module, "scores_tile", spy)
    q, k, v = (np.random.default_rng(0).standard_normal((n, 3)) for n in (T, S, S))
    out, logsumexp, peak = npf.flash_attention(q, k, v, causal=True, return_peak=True)
    assert computed == expected
    computed.clear()
    npf.flash_attention_backward(out, q, k, v, out, logsumexp, causal=True, peak=peak)
    assert sorted(computed) == sorted(2 * expected)  # for the row sums, and for the gradients


@EVERY_KERNEL
@pytest.mark.parametrize("causal", [False, True])
def test_tiles_that_a_mask_hides_are_skipped(ops, causal):
    """A band of 5 keys in 1,200.

    The first, the last and other tiles are hidden, and some queries see no key.
    """
    T = smaller(1200)
    q, k, v, dout = (normal(2, 1, T, 8, seed=seed).astype("float32") for seed in range(4))
    keep_mask = np.abs(np.arange(T)[:, None] - np.arange(T)) < 5
    keep_mask[T // 3 : T // 2] = False
    k[:, :, T // 3 + 5 : T // 2 - 5] = np.nan  # of keys that no query sees
    with nf.explain() as calls:
        assert_as_reference(ops, dout, q, k, v, keep_mask, bounds=(32, 64), causal=causal)
    assert [call.by for call in calls if call.backend != "reference"] == ["kernel", "kernel"]
