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


def inputs(n_queries, n_keys, batch=(B, H), dtype="float64"):
    """``q, k, v, dout``."""
    shapes = [(n_queries, K), (n_keys, K), (n_keys, KV), (n_queries, KV)]
    return [normal(*batch, *shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes)]


LENGTHS = [(n, n) for n in (1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 131)]
LENGTHS += [(1, 131), (131, 1), (63, 129), (129, 63), (65, 66), (200, 67)]
MASKS = [(71,), (1,), (1, 1), (67, 71), (1, 71), (67, 1)]
MASKS += [(B, 1, 1, 71), (B, 1, 67, 1), (H, 1, 71), (B, H, 67, 71), ()]
CAUSAL = pytest.mark.parametrize("causal", [False, True])
DROPOUT = {"dropout_rate": 0.3, "dropout_key": 7}


def assert_same_as_attention(*arrays, **options):
    results = attend("flash_attention", *arrays, **options)
    assert_all_close(results, attend("attention", *arrays, **options))


@CAUSAL
@pytest.mark.parametrize("lengths", LENGTHS)
def test_lengths_around_the_tile_and_more_queries_or_keys(lengths, causal):
    arrays = inputs(*lengths)
    assert_same_as_attention(*arrays, causal=causal)
    assert_same_as_attention(*arrays, causal=causal, scale=0.7, **DROPOUT)


@CAUSAL
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_masks_of_every_shape(shape, causal):
    arrays = inputs(67, 71)
    for above in (-0.3, np.inf):  # of which the second hides everything
        keep_mask = np.asarray(normal(*shape) > above)
        assert_same_as_attention(*arrays, keep_mask=keep_mask, causal=causal)


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
        q = 1e5 * normal(1, 1, 1, 6, seed=seed, dtype="float32")
        k = 1e5 * normal(1, 1, 2, 6, seed=seed + 1, dtype="float32")
        v = normal(1, 1, 3, 6, seed=seed + 2, dtype="float32")
        k = np.concatenate([k, -k[:, :, :1]], axis=2)
        out, *_ = getattr(ops, name)(q, k, v)
        assert_close(out, getattr(npf, name)(q, k, v)[0])


@EVERY_KERNEL
def test_nan_of_a_masked_key_changes_no_weight_of_enormous_scores(ops):
    """The kernel leaves these gradients to the reference,
    whose scores have to be rounded as its own.
    """
    q, k, v, dout = inputs(6, 5, (1, 1), "float32")
    q *= 1e8
    keep_mask = np.array([1, 1, 1, 1, 0], bool)
    gradients_of_v = []
    for hidden in (0, np.nan):
        k[..., 4, :] = hidden
        *_, dv = attend("flash_attention", q, k, v, dout, keep_mask, ops=ops)
        gradients_of_v.append([dv])
    assert_equal_within(100, "float32", *gradients_of_v)


def assert_as_reference(ops, q, k, v, dout, keep_mask=None, bounds=(16, 32), **options):
    """Both passes of a backend and of the reference, the second of what the reference saved."""
    saved = npf.flash_attention(q, k, v, keep_mask, **options)
    results = ops.flash_attention(q, k, v, keep_mask, **options)
    arrays = dout, q, k, v, *saved, keep_mask
    expected = npf.flash_attention_backward(*arrays, **options)
    gradients = ops.flash_attention_backward(*arrays, **options)
    assert_equal_within(bounds[0], str(q.dtype), results, saved)
    assert_equal_within(bounds[1], str(q.dtype), gradients, expected)
    return expected


LONG = [
    (300, 1100, True, "float32"),
    (520, 270, False, "float64"),
    (257, 600, True, "float64"),
    (1, 600, False, "float32"),
]


@EVERY_KERNEL
@pytest.mark.parametrize(("T", "S", "causal", "dtype"), LONG)
def test_kernels_over_several_tiles(ops, T, S, causal, dtype):
    if ops is ON_GPU:
        T = smaller(T)
        S = smaller(S)
    arrays = inputs(T, S, dtype=dtype)
    options = {"causal": causal, "dropout_rate": 0.1, "dropout_key": 5}
    for shape in ((B, 1, 1, S), (T, S), (H, T, 1)):
        assert_as_reference(ops, *arrays, normal(*shape) > -0.8, **options)


@EVERY_KERNEL
@pytest.mark.parametrize("name", ["q", "dout"])
def test_one_nan_of_a_query_that_sees_nothing_beside_hidden_tiles(ops, name):
    """The first keys are hidden from all queries,
    so that the first row of the gradients does not show the NaN.
    """
    S = smaller(300) if ops is ON_GPU else 300
    q, k, v, dout = inputs(2, S, (1, 1), "float32")
    keep_mask = np.zeros((2, S), bool)
    keep_mask[1, S - 5 :] = True
    {"q": q, "dout": dout}[name][..., 0, 3] = np.nan
    gradients = assert_as_reference(ops, q, k, v, dout, keep_mask)
    assert np.isfinite(gradients[2]).all()


@EVERY_KERNEL
def test_one_nan_in_a_masked_key_of_a_later_tile(ops):
    q, k, v, dout = inputs(600, 600, (1, 1), "float32")
    options = {"keep_mask": np.arange(600) < 400, "causal": True}
    saved = npf.flash_attention(q, k, v, **options)
    expected = npf.flash_attention_backward(dout, q, k, v, *saved, **options)
    k[0, 0, 450, 3] = np.nan
    actual = ops.flash_attention_backward(dout, q, k, v, *saved, **options)
    assert_equal_within(32, "float32", actual, expected)


@EVERY_KERNEL
def test_rows_that_are_one_row(ops):
    """The rows of q and v are broadcast, with a stride of 0."""
    row = normal(40, 8, dtype="float32")
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
        out, peak, total = npf.flash_attention(q, k, v, **options)
        npf.flash_attention_backward(out, q, k, v, out, peak, total, **options)

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

    def spy(q, k, keep_mask, bias, causal, tile, **options):
        computed.append((tile.queries.start, tile.keys.start))
        return scores_tile(q, k, keep_mask, bias, causal, tile, **options)

    module = sys.modules["npformer.reference.math.flash_attention"]
    scores_tile = module.scores_tile
    monkeypatch.setattr(module, "scores_tile", spy)
    q, k, v, _ = inputs(T, S, ())
    out, peak, total = npf.flash_attention(q, k, v, causal=True)
    assert computed == expected
    computed.clear()
    npf.flash_attention_backward(out, q, k, v, out, peak, total, causal=True)
    assert sorted(computed) == sorted(2 * expected)  # for the row sums, and for the gradients


@EVERY_KERNEL
@CAUSAL
def test_tiles_that_a_mask_hides_are_skipped(ops, causal):
    """A band of 5 keys in 1,200.

    The first, the last and other tiles are hidden, and some queries see no key.
    """
    T = smaller(1200)
    third = T // 3
    half = T // 2
    q, k, v, dout = (normal(2, 1, T, 8, seed=seed, dtype="float32") for seed in range(4))
    keep_mask = np.abs(np.arange(T)[:, None] - np.arange(T)) < 5
    keep_mask[third:half] = False
    k[:, :, third + 5 : half - 5] = np.nan  # of keys that no query sees
    with nf.explain() as calls:
        assert_as_reference(ops, q, k, v, dout, keep_mask, bounds=(32, 64), causal=causal)
    assert [call.by for call in calls if call.backend != "reference"] == ["kernel", "kernel"]
