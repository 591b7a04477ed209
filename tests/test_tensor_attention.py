"""Attention on tensor cores: of numbers of half precision, as the reference on the same numbers in float32."""

import importlib.util
import sys

import numpy as np
import pytest
from on_gpu import MISSING, NO_GPU, cupy, cupy_installed, gpu, put, take

from npformer import reference

pytestmark = pytest.mark.skipif(bool(MISSING), reason=str(MISSING))
tiles_of = sys.modules["npformer.gpu.flash_attention"].tiles_of
DTYPES = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # and the largest error of rounding, relative
SHAPES = [  # heads, T, S, K, Kv
    (2, 70, 70, 16, 16),
    (1, 64, 130, 32, 32),
    (3, 5, 66, 40, 64),
    (1, 130, 64, 64, 24),
    (1, 70, 70, 128, 128),
]


def half(name):
    if name == "bfloat16":
        return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return np.dtype(name)


def example(dtype, shape, mask):
    """(dout, q, k, v) in half precision and a mask, with rows of padding whose keys and values are NaN."""
    H, T, S, K, Kv = shape
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=size).astype(dtype) for size in ((H, T, Kv), (H, T, K), (H, S, K), (H, S, Kv))]
    keep_mask = None
    if mask:
        keep_mask = rng.random((H, 1, S)) < 0.7
        keep_mask[0] = False
        for x in arrays[2:]:
            x[~keep_mask[:, 0]] = np.nan
    return arrays, keep_mask


def both(arrays, keep_mask, **options):
    """Results of a forward and a backward pass, by the kernels and by the reference; both go back from the same."""
    with cupy_installed():
        dout, q, k, v, mask = put((*arrays, keep_mask))
        assert tiles_of(q, k, v, dout).file == "tensor_attention"
        saved = gpu.flash_attention(q, k, v, mask, **options)
        actual = take((*saved, *gpu.flash_attention_backward(dout, q, k, v, *saved, mask, **options)))
    dout, q, k, v, *saved = (x.astype("float32") for x in (*arrays, *actual[:2]))
    expected = reference.flash_attention(q, k, v, keep_mask, **options)
    return actual, (*expected, *reference.flash_attention_backward(dout, q, k, v, *saved, keep_mask, **options))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
@pytest.mark.parametrize("mask", [False, True], ids=["", "mask"])
def test_as_the_reference(name, shape, causal, mask):
    dtype, rate = half(name), 0.25 if mask else 0.0
    arrays, keep_mask = example(dtype, shape, mask)
    results = both(arrays, keep_mask, causal=causal, dropout_rate=rate, key=7 if rate else None)
    for what, x, wanted in zip(("out", "logsumexp", "dq", "dk", "dv"), *results, strict=True):
        x = x.astype("float32")
        if what == "logsumexp":
            np.testing.assert_allclose(x, wanted, rtol=0, atol=1e-5)
            continue
        assert np.isfinite(wanted).all()
        # weights, their gradients and the result are rounded once each; a row is a sum of many of them
        scale = np.abs(wanted).max(axis=-1, keepdims=True) + 0.01 * np.abs(wanted).max()
        assert (np.abs(x - wanted) <= 4 * DTYPES[name] * scale).all(), f"{what}: {(np.abs(x - wanted) / scale).max()}"


def test_what_is_seen_and_is_not_finite_is_not_hidden():
    arrays, _ = example(half("float16"), (1, 70, 70, 16, 16), False)
    arrays[3][0, 3, 5], arrays[3][0, 9, 6] = np.nan, np.inf
    actual, wanted = both(arrays, None, causal=True)
    for x, y in zip(actual, wanted, strict=True):
        np.testing.assert_array_equal(np.isfinite(x), np.isfinite(y))


@pytest.mark.skipif(NO_GPU is None, reason="threads of a GPU run as they like")
def test_the_order_of_threads_and_copies_changes_nothing(monkeypatch):
    arrays, keep_mask = example(half("float16"), (2, 130, 130, 16, 16), False)
    in_order, _ = both(arrays, keep_mask, causal=True)
    monkeypatch.setattr(cupy, "threads_run_in_reverse", True)
    in_reverse, _ = both(arrays, keep_mask, causal=True)
    for x, y in zip(in_order, in_reverse, strict=True):
        np.testing.assert_array_equal(x, y)


def test_rows_that_do_not_begin_at_16_bytes_go_elsewhere():
    q, k, v = (cupy.asarray(x) for x in np.zeros((3, 1, 8, 12), "float16"))
    assert tiles_of(q, k, v).file == "flash_attention"
    q, k, v = (cupy.asarray(x)[..., 4:12] for x in np.zeros((3, 1, 8, 16), "float16"))
    assert tiles_of(q, k, v).file == "flash_attention"


def test_bfloat16_is_tested_somewhere():
    assert importlib.util.find_spec("ml_dtypes"), "tests need ml_dtypes, for NumPy has no bfloat16"
