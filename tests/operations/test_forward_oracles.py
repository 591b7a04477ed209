"""Every forward operation against loops over scalars, at every case of the table."""

import numpy as np
import oracles
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_all_close, assert_close
from results import arrays_of, normal
from tested import npf

from npformer.gradients.cases import CASES

B, H, T, S, K, KV, D, V = 2, 3, 5, 7, 11, 13, 17, 23
WITH_ORACLE = [case for case in CASES if hasattr(oracles, case.operation)]


WRONG = [[1.0, np.nan], [1.0, -2.0], [1.0, 2.0 + 1e-12], [[1.0, 2.0]], [1.0]]


def test_the_comparison_itself_can_fail():
    for wrong in WRONG:
        with pytest.raises(AssertionError):
            assert_close(wrong, [1.0, 2.0])


@pytest.mark.parametrize("case", WITH_ORACLE, ids=str)
def test_an_operation_is_its_loop(case):
    arguments = case.arguments()
    loop = getattr(oracles, case.operation)
    expected = arrays_of(loop(**arguments))
    results = arrays_of(case.forward(**arguments))
    assert_all_close(results[: len(expected)], expected)


def test_what_has_no_loop_is_tested_elsewhere():
    elsewhere = {"global_norm", "norms_of_blocks", "sgd_update", "adam_update", "lion_update"}
    with_oracle = {case.operation for case in WITH_ORACLE}
    assert {case.operation for case in CASES} == elsewhere | with_oracle


# Where the table does not go.


def test_gelu_erf_has_as_many_digits_where_it_is_small():
    x = np.linspace(-37, 37, 2001)
    exact = oracles.gelu_erf(x)
    of_an_argument_of_eps = 1e-15 * (1 + x * x) * np.abs(exact)
    assert (np.abs(npf.gelu_erf(x) - exact) <= of_an_argument_of_eps).all()


def test_sigmoid_far_out():
    assert_close(npf.sigmoid(np.array([-745.0, -800.0, 800.0])), [0, 0, 1])


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_far_from_zero(name):
    for shift in (1000, -1000):
        x = 5 * normal(T, S, K) + shift
        assert_close(getattr(npf, name)(x), getattr(oracles, name)(x), 1e-12)


def test_layer_norm_far_from_zero():
    arrays = 1e6 + normal(T, D), np.ones(D), np.zeros(D)
    y, *_ = npf.layer_norm(*arrays)
    expected, *_ = oracles.layer_norm(*arrays)
    assert_close(y, expected, 1e-9)


def assert_attention_is_its_loop(*arrays, **options):
    out, weights, peak, total = oracles.attention_in_full(*arrays, **options)
    assert_all_close(npf.attention(*arrays, **options), (out, weights))
    assert_all_close(npf.flash_attention(*arrays, **options), (out, peak, total))


@pytest.mark.parametrize("batch", [(), (B,), (2, 1, 3)])
@pytest.mark.parametrize("n_queries", [T, S, S + 4])
def test_attention_of_any_shape(batch, n_queries):
    q = normal(*batch, n_queries, K)
    k = normal(*batch, S, K)
    v = normal(*batch, S, KV)
    for causal in (False, True):
        assert_attention_is_its_loop(q, k, v, causal=causal)


@pytest.mark.parametrize("shape", [(B, 1, 1, S), (B, 1, T, 1), (T, S), (S,), (1,), ()], ids=str)
def test_attention_with_masks_and_biases_of_any_shape(shape):
    q = normal(B, H, T, K)
    k = normal(B, H, S, K)
    v = normal(B, H, S, KV)
    bias = np.asarray(normal(*shape, seed=9))
    assert_attention_is_its_loop(q, k, v, keep_mask=np.asarray(bias > -0.5), bias=bias)


@pytest.mark.parametrize("ignore_id", [-100, 1])
def test_cross_entropy_with_all_of_a_label_smoothed(ignore_id):
    logits = 3 * normal(T, V)
    targets = np.array([3, 1, ignore_id, 1, 5])
    options = {"ignore_id": ignore_id, "label_smoothing": 1.0}
    expected = oracles.cross_entropy(logits, targets, **options)
    assert_all_close(npf.cross_entropy(logits, targets, **options), expected)


@pytest.mark.parametrize("name", ["mse_loss", "huber_loss"])
def test_regression_losses_with_a_mask_of_the_last_axis(name):
    arrays = normal(B, T, V), normal(B, T, V, seed=1), normal(V, seed=2) > 0
    assert_all_close(getattr(npf, name)(*arrays), getattr(oracles, name)(*arrays))


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_sinusoidal_encoding(layout):
    for d_model in (1, 2, 3, 16, 17):
        actual = npf.sinusoidal_encoding(50, d_model, layout)
        assert_close(actual, oracles.sinusoidal_encoding(50, d_model, layout))
        for dtype in ("float16", np.float32, np.dtype("complex128")):
            rounded = npf.sinusoidal_encoding(50, d_model, layout, dtype)
            assert rounded.dtype == dtype
            assert_array_equal(rounded, actual.astype(dtype))


def test_heads_are_views():
    packed = normal(B, T, H * K)
    assert np.shares_memory(npf.split_heads(packed, H), packed)


def test_causal_mask():
    for T, S in ((5, 5), (3, 7), (7, 3), (1, 4), (4, 1)):
        mask = npf.causal_mask(T, S)
        assert mask.tolist() == [[s <= t + S - T for s in range(S)] for t in range(T)]
        assert mask.dtype == bool
    assert_array_equal(npf.causal_mask(5), npf.causal_mask(5, 5))


def test_padding_mask():
    ids = np.array([[5, 3, 0], [7, 0, 0]])
    for pad_id in (0, 7):
        assert_array_equal(npf.padding_mask(ids, pad_id=pad_id)[:, 0, 0], ids != pad_id)
    assert_array_equal(npf.padding_mask(ids), npf.padding_mask(ids, pad_id=0))
