"""What a convolution promises besides its numbers."""

import numpy as np
import pytest
from oracles import assert_all_close
from results import FLOATS, normal
from tested import npf

from npformer import cpu, reference

B, T, K, KV = 2, 17, 11, 13


@pytest.mark.usefixtures("every_backend")
@FLOATS
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
        seen_by = [s for s in (t, t + dilation, t + 2 * dilation) if s < T]
        assert np.flatnonzero(differs).tolist() == seen_by


@pytest.mark.parametrize("options", [{"dilation": 16, "causal": True}, {"dilation": 4}], ids=str)
def test_the_kernel_computes_what_the_reference_does_at_sizes_of_training(options):
    x = normal(9, 40, 64, dtype="float32")
    weight = normal(3, 64, 48, seed=1, dtype="float32")
    bias = normal(48, seed=2, dtype="float32")
    dy = normal(9, 40, 48, seed=3, dtype="float32")

    def both_passes(ops):
        gradients = ops.conv1d_backward(dy, x, weight, bias, **options)
        return ops.conv1d(x, weight, bias, **options), *gradients

    results = both_passes(cpu)
    assert all(result.flags.c_contiguous for result in results)
    assert_all_close(results, both_passes(reference), 1e-6)
