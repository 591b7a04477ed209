"""Attention on tensor cores, in half precision.

Compared with the reference on the same numbers in float32.
"""

import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from on_gpu import HAS_TENSOR_CORES, MISSING, NO_GPU, cupy, cupy_installed, gpu, put, take
from oracles import assert_all_close, assert_close

from npformer import reference
from npformer.operations.settings import AttentionSettings

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=str(MISSING)),
    pytest.mark.skipif(
        not HAS_TENSOR_CORES, reason="no tensor cores of the Ampere generation or later"
    ),
]
tiles_of = sys.modules["npformer.gpu.kernels.flash_attention"].tiles_of
DTYPES = {"float16": np.dtype("float16"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
ERROR = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # the largest of rounding, relative
SHAPES = [  # B, H, T, S, K, Kv
    (2, 1, 70, 70, 16, 16),
    (1, 1, 64, 130, 32, 32),
    (2, 2, 5, 66, 40, 64),
    (1, 1, 130, 64, 64, 24),
    (1, 1, 70, 70, 128, 128),
]
OF_KEYS = "mask of keys"
OF_QUERIES = "mask of queries and keys"
EACH_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=str)
DROPOUT = {"dropout_rate": 0.25, "dropout_key": 7}


def example(dtype, shape, mask=None, hidden=None):
    """dout, q, k, v in half precision and a mask, under which keys and values are ``hidden``."""
    B, H, T, S, K, Kv = shape
    rng = np.random.default_rng(0)
    sizes = (B, H, T, Kv), (B, H, T, K), (B, H, S, K), (B, H, S, Kv)
    arrays = [rng.normal(size=size).astype(DTYPES[dtype]) for size in sizes]
    if mask is None:
        return *arrays, None
    keep_mask = rng.random((B, 1, 1, S) if mask == OF_KEYS else (B, H, T, S)) < 0.7
    keep_mask[..., S // 2] = False  # a key that no query sees
    if mask == OF_QUERIES:
        keep_mask[:, :, T // 2] = False  # and a query that sees none
    if hidden is not None:
        is_hidden = ~keep_mask.any(axis=2)
        for x in arrays[2:]:
            x[np.broadcast_to(is_hidden, x.shape[:-1])] = hidden
    return *arrays, keep_mask


def by_kernels(dout, q, k, v, keep_mask, **options):
    """Results of both passes, and the number of keys in a tile."""
    with cupy_installed():
        dout, q, k, v, keep_mask = put((dout, q, k, v, keep_mask))
        tiles = tiles_of(q, k, v, dout)
        assert tiles.file == "tensor_attention"
        saved = gpu.flash_attention(q, k, v, keep_mask, **options)
        arrays = dout, q, k, v, *saved, keep_mask
        gradients = gpu.flash_attention_backward(*arrays, **options)
        return take((*saved, *gradients)), tiles.constants["TILE"]


def both(*arrays, **options):
    """Results of both passes, by the kernels and by the reference in float32."""
    actual, tile = by_kernels(*arrays, **options)
    dout, q, k, v = (x.astype("float32") for x in arrays[:4])
    keep_mask = arrays[4]
    out, peak, total = reference.flash_attention(q, k, v, keep_mask, **options)
    inputs = dout, q, k, v, out, peak, total, keep_mask
    dq, dk, dv = reference.flash_attention_backward(*inputs, **options)
    # the row sums are those of the output, which was rounded
    if k.shape[2] > tile:
        _, weights = reference.attention(q, k, v, keep_mask, **options)
        rounding = (dout * (out - actual[0].astype("float32"))).sum(axis=-1, keepdims=True)
        dscores = options.get("scale", q.shape[-1] ** -0.5) * weights * rounding
        dq = dq + reference.product(dscores, k)
        dk = dk + reference.product(dscores.swapaxes(-1, -2), q)
    return actual, (out, peak, total, dq, dk, dv)


def assert_near(actual, expected, error):
    names = "out", "peak", "total", "dq", "dk", "dv"
    for name, x, wanted in zip(names, actual, expected, strict=True):
        x = x.astype("float32")
        if name in ("peak", "total"):
            assert_close(x, wanted, 1e-5)
            continue
        assert np.isfinite(wanted).all()
        # weights, their gradients and the result are rounded once each;
        # a row is a sum of many of them
        scale = np.abs(wanted).max(axis=-1, keepdims=True) + 0.01 * np.abs(wanted).max()
        assert (np.abs(x - wanted) / scale).max() <= 4 * error, name


CALLS = [("float16", shape) for shape in SHAPES]
CALLS += [("bfloat16", SHAPES[0]), ("bfloat16", SHAPES[2])]


@pytest.mark.parametrize(("dtype", "shape"), CALLS, ids=str)
@pytest.mark.parametrize("mask", [None, OF_KEYS, OF_QUERIES])
def test_as_the_reference(dtype, shape, mask):
    arrays = example(dtype, shape, mask)
    for causal in (False, True):
        assert_near(*both(*arrays, causal=causal), ERROR[dtype])


@pytest.mark.parametrize("mask", [None, OF_KEYS])
@EACH_SHAPE
def test_dropout_has_the_bits_of_the_reference(shape, mask):
    results = both(*example("float16", shape, mask), causal=True, scale=0.3, **DROPOUT)
    assert_near(*results, ERROR["float16"])


@pytest.mark.parametrize("hidden", [np.nan, np.inf])
@EACH_SHAPE
def test_what_a_mask_hides_has_no_effect(shape, hidden):
    results = both(*example("float16", shape, OF_QUERIES, hidden), **DROPOUT)
    assert_near(*results, ERROR["float16"])


def test_what_is_seen_and_is_not_finite_is_not_hidden():
    dout, q, k, v, _ = example("float16", SHAPES[0])
    v[0, 0, 3, 5] = np.nan
    v[0, 0, 9, 6] = np.inf
    actual, wanted = both(dout, q, k, v, None, causal=True)
    for x, y in zip(actual, wanted, strict=True):
        assert_array_equal(np.isfinite(x), np.isfinite(y))


def test_heads_are_read_where_a_projection_leaves_them():
    settings = AttentionSettings(2, causal=True)
    qkv = np.random.default_rng(0).normal(size=(2, 70, 3 * 32)).astype("float16")
    dout = qkv[..., :32]
    with cupy_installed():
        on_gpu = gpu.self_attention(put(qkv), settings)
        dqkv = take(gpu.self_attention_backward(put(dout), put(qkv), *on_gpu, settings))
        saved = [take(x).astype("float32") for x in on_gpu]
    wide = qkv.astype("float32")
    out, *_ = reference.self_attention(wide, settings)
    gradient = reference.self_attention_backward(wide[..., :32], wide, *saved, settings)
    for x, wanted in ((saved[0], out), (dqkv, gradient)):
        assert_close(x, wanted, 4 * ERROR["float16"] * np.abs(wanted).max())


@pytest.mark.skipif(NO_GPU is None, reason="threads of a GPU run as they like")
@pytest.mark.parametrize("hidden", [None, np.nan])
def test_the_order_of_threads_and_copies_changes_nothing(hidden, monkeypatch):
    """With three tiles, also if a block computes its result again."""
    mask = None if hidden is None else OF_QUERIES
    arrays = example("float16", (1, 2, 130, 130, 16, 16), mask, hidden)
    in_order, expected = both(*arrays, causal=True)
    assert_near(in_order, expected, ERROR["float16"])
    monkeypatch.setattr(cupy, "threads_run_in_reverse", True)
    in_reverse, _ = by_kernels(*arrays, causal=True)
    assert_all_close(in_order, in_reverse, 0)


def test_rows_that_do_not_begin_at_16_bytes_go_elsewhere():
    for width, part in ((12, slice(None)), (16, slice(4, 12))):
        arrays = [cupy.asarray(x)[..., part] for x in np.zeros((3, 1, 8, width), "float16")]
        assert tiles_of(*arrays).file == "flash_attention"
