"""The score functions, and attention with any of them."""

import numpy as np
import oracles
import pytest
from oracles import assert_close
from tested import npf

from npformer.reference.math.scores import SCORES

B, H, T, S, K, KV, A = 2, 3, 5, 7, 11, 13, 17
POISONS = [np.nan, np.inf, -np.inf]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def arrays_for(score, batch=(B,), n_queries=T, dtype="float64"):
    """``q, k, v, params`` for the score of this name."""
    q, v = normal(*batch, n_queries, K), normal(*batch, S, A, seed=2)
    k = normal(*batch, S, KV if SCORES[score][2] else K, seed=1)
    params = {
        "bilinear": (normal(K, KV, seed=3),),
        "additive": (0.3 * normal(K, A, seed=4), 0.3 * normal(KV, A, seed=5), normal(A, seed=6)),
    }.get(score, ())
    return *(x.astype(dtype) for x in (q, k, v)), tuple(x.astype(dtype) for x in params)


def forward_and_backward(score, q, k, v, params, dout, keep_mask=None, causal=False):
    """``[out, dq, dk, dv, *dparams]``."""
    out, weights = npf.score_attention(q, k, v, score, params, keep_mask, causal=causal)
    return [out, *npf.score_attention_backward(dout, q, k, v, weights, score, params)]


# Against loops over single numbers.


@pytest.mark.parametrize("batch", [(), (B,), (B, H)])
@pytest.mark.parametrize("score", SCORES)
def test_scores(score, batch):
    q, k, _, params = arrays_for(score, batch)
    scores = getattr(npf, f"{score}_score")(q, k, *params)
    assert_close(scores, getattr(oracles, f"{score}_score")(q, k, *params))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n_queries", [T, S, S + 2])
@pytest.mark.parametrize("score", SCORES)
def test_score_attention(score, n_queries, causal, masked):
    q, k, v, params = arrays_for(score, n_queries=n_queries)
    keep_mask = normal(B, n_queries, S, seed=7) > 0 if masked else None
    scores = getattr(oracles, f"{score}_score")(q, k, *params)
    expected, expected_weights = oracles.attend(scores, v, keep_mask, causal)
    out, weights = npf.score_attention(q, k, v, score, params, keep_mask, causal=causal)
    assert_close(out, expected)
    assert_close(weights, expected_weights)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_with_scaled_dot_it_is_attention(dtype):
    q, k, v, _ = arrays_for("scaled_dot", (B, H), dtype=dtype)
    dout, keep_mask = normal(B, H, T, A, seed=8).astype(dtype), normal(B, H, T, S, seed=7) > 0
    expected, weights = npf.attention(q, k, v, keep_mask, causal=True)
    gradients = npf.attention_backward(dout, q, k, v, weights)
    actual = forward_and_backward("scaled_dot", q, k, v, (), dout, keep_mask, causal=True)
    for array, wanted in zip(actual, [expected, *gradients], strict=True):
        assert array.dtype == dtype
        assert_close(array.astype(float), wanted.astype(float), 4 * np.finfo(dtype).eps)


def test_scaled_dot_is_dot_of_a_scaled_query():
    q, k, v, _ = arrays_for("dot")
    assert_close(npf.scaled_dot_score(q, k), npf.dot_score(q, k) / np.sqrt(K))
    out, _ = npf.score_attention(q / np.sqrt(K), k, v, "dot")
    assert_close(npf.score_attention(q, k, v, "scaled_dot")[0], out)


def test_bilinear_with_the_identity_is_dot():
    q, k, _, _ = arrays_for("dot")
    assert_close(npf.bilinear_score(q, k, np.eye(K)), npf.dot_score(q, k))


@pytest.mark.parametrize("batch", [(), (B, H), (2, 1, 3)])
@pytest.mark.parametrize("score", SCORES)
def test_backward_with_any_number_of_leading_axes(score, batch):
    """Each sentence for itself, and what the weights get from all of them added up."""
    q, k, _, params = arrays_for(score, batch)
    dscores, backward = normal(*batch, T, S, seed=9), getattr(npf, f"{score}_score_backward")
    dq, dk, *dparams = backward(dscores, q, k, *params)
    sums = [np.zeros(param.shape) for param in params]
    for index in np.ndindex(*batch):
        dq_one, dk_one, *dparams_one = backward(dscores[index], q[index], k[index], *params)
        assert_close(dq[index], dq_one)
        assert_close(dk[index], dk_one)
        sums = [total + one for total, one in zip(sums, dparams_one, strict=True)]
    for dparam, total in zip(dparams, sums, strict=True):
        assert_close(dparam, total)


# The cosine.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [-20, 0, 20])
def test_a_cosine_does_not_depend_on_lengths(dtype, exponent):
    q, k, _, _ = arrays_for("cosine", dtype=dtype)
    scores = npf.cosine_score(q * 10.0**exponent, k * 10.0**-exponent)
    assert_close(scores, npf.cosine_score(q, k), 8 * np.finfo(dtype).eps)
    assert np.abs(scores).max() <= 1 + np.finfo(dtype).eps


def test_a_cosine_of_vectors_whose_largest_entries_are_negative():
    q, k, _, _ = arrays_for("cosine")
    q, k = -np.abs(q), -np.abs(k)
    expected = npf.cosine_score(-q, -k)
    for factor in (1, 1e200):
        assert_close(npf.cosine_score(factor * q, k), expected, 1e-14)
    mixed = np.array([[[1e-3, -1e200]]])  # whose square overflows
    assert_close(npf.cosine_score(mixed, -mixed), np.array([[[-1.0]]]), 1e-14)


def test_a_vector_of_zeros_has_no_direction():
    q, k, v, _ = arrays_for("cosine")
    clean = npf.cosine_score(q, k), npf.cosine_score_backward(np.ones((B, T, S)), q, k)
    q[0, 1] = k[1, 2] = 0
    scores = npf.cosine_score(q, k)
    assert not scores[0, 1].any()
    assert not scores[1, :, 2].any()
    np.testing.assert_array_equal(scores[1][:, [0, 1, 3]], clean[0][1][:, [0, 1, 3]])
    dq, dk = npf.cosine_score_backward(np.ones((B, T, S)), q, k)
    assert not dq[0, 1].any()
    assert not dk[1, 2].any()
    np.testing.assert_array_equal(dq[0, 2:], clean[1][0][0, 2:])
    assert np.isfinite(npf.score_attention(0 * q, 0 * k, v, "cosine")[0]).all()


# What is masked never matters.


@pytest.mark.parametrize("score", SCORES)
def test_query_that_may_attend_to_nothing(score):
    q, k, v, params = arrays_for(score)
    keep_mask = np.arange(T)[:, None] != 2
    out, dq, *_ = forward_and_backward(score, q, k, v, params, normal(B, T, A, seed=8), keep_mask)
    assert not out[:, 2].any()
    assert not dq[:, 2].any()
    assert out[:, [0, 1, 3, 4]].all()
    nothing = forward_and_backward(score, q, k, v, params, normal(B, T, A), np.zeros((T, S), bool))
    assert not any(array.any() for array in nothing)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("poison", POISONS)
def test_a_score_without_gradient_passes_none(score, poison):
    q, k, _, params = arrays_for(score)
    backward = getattr(npf, f"{score}_score_backward")
    dscores = normal(B, T, S)
    dscores[:, 2] = dscores[..., 4] = 0
    clean = backward(dscores, q, k, *params)
    q[:, 2] = k[:, 4] = poison
    poisoned = backward(dscores, q, k, *params)
    assert_same_bits(poisoned, clean)
    assert not poisoned[0][:, 2].any()
    assert not poisoned[1][:, 4].any()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("which", ["k", "v"])
def test_honest_nan_shows_in_the_queries_that_see_it(score, which):
    q, k, v, params = arrays_for(score)
    keep_mask = np.ones((T, S), bool)
    keep_mask[2, 4] = False
    {"k": k, "v": v}[which][:, 4] = np.nan
    out, dq, *_ = forward_and_backward(score, q, k, v, params, normal(B, T, A, seed=8), keep_mask)
    assert np.isnan(out[:, [0, 1, 3, 4]]).all()
    assert np.isnan(dq[:, [0, 1, 3, 4]]).any(axis=-1).all()
    assert np.isfinite(out[:, 2]).all()
    assert np.isfinite(dq[:, 2]).all()


def assert_same_bits(actual, expected):
    for array, wanted in zip(actual, expected, strict=True):
        assert np.isfinite(wanted).all()
        np.testing.assert_array_equal(array, wanted)


# Half precision: 65504 is the largest number.


@pytest.mark.parametrize("score", ["dot", "scaled_dot", "bilinear"])
def test_scores_that_overflow_half_precision(score):
    q, k, v, dout = (
        np.full((n, 64), value, "float16") for n, value in ((5, 200), (7, 200), (7, 200), (5, 0.01))
    )
    params = (np.eye(64, dtype="float16"),) if score == "bilinear" else ()
    out, *gradients = forward_and_backward(score, q, k, v, params, dout)
    assert (out == 200).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("score", SCORES)
def test_half_precision_is_rounded_once(score):
    """The error is at most half a unit in the last place,
    compared with float64 on the same numbers.
    """
    q, k, _, params = arrays_for(score, dtype="float16")
    dscores = normal(B, T, S, seed=9).astype("float16")
    wide = [x.astype("float64") for x in (dscores, q, k, *params)]
    scores, gradients = getattr(npf, f"{score}_score"), getattr(npf, f"{score}_score_backward")
    actual = [scores(q, k, *params), *gradients(dscores, q, k, *params)]
    for array, exact in zip(actual, [scores(*wide[1:]), *gradients(*wide)], strict=True):
        assert array.dtype == "float16"
        assert (
            np.abs(array - exact) <= 0.51 * np.spacing(np.abs(array)).astype(float) + 2e-6
        ).all()


def test_products_of_dout_and_v_that_overflow_half_precision():
    q, k, v, dout = (
        np.full((n, 64), value, "float16") for n, value in ((3, 1), (4, 1), (4, 200), (3, 200))
    )
    _, dq, dk, dv = forward_and_backward("scaled_dot", q, k, v, (), dout)
    assert not dq.any()  # equal scores, equal values: nothing to gain from another weight
    assert not dk.any()
    assert (dv == 150).all()


def test_additive_sums_of_half_precision_are_wide():
    """4096 hidden units of 1 each: 2048 + 1 is 2048 in half precision."""
    q, k, one, w_score = np.ones((1, 1)), np.ones((1, 1)), np.full((1, 4096), 9.0), np.ones(4096)
    scores = npf.additive_score(*(x.astype("float16") for x in (q, k, one, one, w_score)))
    assert scores == 4096


# Nothing at all, and mistakes.


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("batch", "n_queries", "n_keys"), [(0, 5, 7), (2, 0, 7), (2, 5, 0), (2, 0, 0)]
)
def test_attention_of_nothing(score, batch, n_queries, n_keys):
    q, k, v, params = arrays_for(score)
    q, k, v = (
        np.ones((batch, n, x.shape[-1])) for n, x in ((n_queries, q), (n_keys, k), (n_keys, v))
    )
    out, *gradients = forward_and_backward(
        score, q, k, v, params, np.ones((batch, n_queries, A)), causal=True
    )
    assert out.shape == (batch, n_queries, A)
    for gradient, array in zip(gradients, (q, k, v, *params), strict=True):
        assert gradient.shape == array.shape
        assert batch and n_queries and n_keys or not gradient.any()


def test_unknown_scores_and_wrong_parameters():
    q, k, v, params = arrays_for("additive")
    known = "'dot', 'scaled_dot', 'cosine', 'bilinear' or 'additive'"
    with pytest.raises(TypeError, match="q is a str, expected an array"):
        npf.score_attention("dot", q, k, v)
    with pytest.raises(ValueError, match=rf"score='general', expected {known}"):
        npf.score_attention(q, k, v, "general", params)
    with pytest.raises(
        ValueError,
        match=r"params has 2 arrays, expected 3 with score='additive': \('w_q', 'w_k', 'w_s",
    ):
        npf.score_attention(q, k, v, "additive", params[:2])
    with pytest.raises(
        ValueError, match=r"params has 0 arrays, expected 1 with score='bilinear': \('weight',\)"
    ):
        npf.score_attention(q, k, v, "bilinear")
    with pytest.raises(
        TypeError, match=r"params is a ndarray, expected a tuple of 1 arrays \('weight',\)"
    ):
        npf.score_attention(q, k, v, "bilinear", np.eye(K, KV))
    with pytest.raises(TypeError, match="w_k is a list, expected an array"):
        npf.score_attention(q, k, v, "additive", (params[0], params[1].tolist(), params[2]))
    with pytest.raises(TypeError, match="w_q has dtype int64, expected a float dtype"):
        dout, weights = np.ones((B, T, A)), np.ones((B, T, S))
        npf.score_attention_backward(
            dout, q, k, v, weights, "additive", (np.ones((K, A), int), *params[1:])
        )
