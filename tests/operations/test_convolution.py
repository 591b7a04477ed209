"""What a convolution promises besides its numbers."""

import pytest
from oracles import assert_all_close
from results import normal

from npformer import cpu, reference

B, T, K, KV = 2, 17, 11, 13


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
