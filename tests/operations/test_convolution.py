"""What a convolution promises besides its numbers."""

import numpy as np
import pytest
from oracles import assert_close
from results import FLOATS, normal
from tested import npf

from npformer import cpu, reference

pytestmark = pytest.mark.usefixtures("every_backend")

B, T, K, KV = 2, 17, 11, 13


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
        assert np.flatnonzero(differs).tolist() == [
            s for s in (t, t + dilation, t + 2 * dilation) if s < T
        ]


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
