"""What a convolution promises besides its numbers."""

import numpy as np
import pytest
from oracles import assert_all_close, assert_close
from tested import npf

from npformer import cpu, reference

pytestmark = pytest.mark.usefixtures("every_backend")

B, T, K, KV = 2, 17, 11, 13


def normal(*shape, seed=0, dtype="float64"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dilation", [1, 2, 4, 16, 17])
def test_a_causal_convolution_sees_the_past_only(dilation, dtype):
    x = normal(B, T, K, dtype=dtype)
    weight = normal(3, K, KV, seed=1, dtype=dtype)
    bias = normal(KV, dtype=dtype)
    before = npf.conv1d(x, weight, bias, dilation=dilation, causal=True)
    for t in range(T):
        changed = x.copy()
        changed[:, t] += 1
        after = npf.conv1d(changed, weight, bias, dilation=dilation, causal=True)
        differs = (after != before).any(axis=(0, 2))
        assert np.flatnonzero(differs).tolist() == [
            s for s in (t, t + dilation, t + 2 * dilation) if s < T
        ]


@pytest.mark.parametrize("dilation", [1, 2, 4, 8, 9])
def test_a_centred_convolution_sees_both_sides(dilation):
    x, weight = normal(B, T, K), normal(3, K, KV, seed=1)
    before = npf.conv1d(x, weight, dilation=dilation)
    changed = x.copy()
    changed[:, 8] += 1
    differs = (npf.conv1d(changed, weight, dilation=dilation) != before).any(axis=(0, 2))
    assert np.flatnonzero(differs).tolist() == [
        s for s in (8 - dilation, 8, 8 + dilation) if 0 <= s < T
    ]


@pytest.mark.parametrize("causal", [False, True])
def test_one_tap_is_the_linear_map(causal):
    x, weight, bias = normal(B, T, K), normal(1, K, KV, seed=1), normal(KV, seed=2)
    y = npf.conv1d(x, weight, bias, dilation=3, causal=causal)
    assert_close(y, npf.linear(x, weight[0], bias))
    dx, dweight, dbias = npf.conv1d_backward(y, x, weight, bias, dilation=3, causal=causal)
    expected = npf.linear_backward(y, x, weight[0], bias)
    assert_all_close((dx, dweight[0], dbias), expected)


def test_a_delayed_causal_convolution_is_the_centred_one():
    x, weight = normal(B, T, K), normal(5, K, KV, seed=1)
    centred = npf.conv1d(x, weight, dilation=2)
    later = npf.conv1d(np.pad(x, ((0, 0), (0, 4), (0, 0))), weight, dilation=2, causal=True)
    assert_close(later[:, 4:], centred)


@pytest.mark.parametrize("causal", [False, True])
def test_taps_beyond_the_ends_get_no_gradient(causal):
    x, weight, dy = normal(B, 4, K), normal(5, K, KV, seed=1), normal(B, 4, KV, seed=2)
    _, dweight, _ = npf.conv1d_backward(dy, x, weight, dilation=2, causal=causal)
    sees = dweight.any(axis=(1, 2)).tolist()
    assert sees == (
        [False, False, False, True, True] if causal else [False, True, True, True, False]
    )


def test_the_kernel_computes_what_the_reference_does_at_sizes_of_training(every_backend):
    if every_backend is reference.ops:
        return
    shapes = (9, 40, 64), (3, 64, 48), (48,), (9, 40, 48)
    x, weight, bias, dy = (
        normal(*shape, seed=seed, dtype="float32") for seed, shape in enumerate(shapes)
    )
    for options in ({"dilation": 16, "causal": True}, {"dilation": 4}):
        results = [
            (
                m.conv1d(x, weight, bias, **options),
                *m.conv1d_backward(dy, x, weight, bias, **options),
            )
            for m in (cpu, reference)
        ]
        for actual, expected in zip(*results, strict=True):
            assert actual.flags.c_contiguous
            assert_close(actual, expected, 1e-6)
