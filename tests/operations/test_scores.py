"""What the score functions promise besides their numbers."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import assert_close
from refusals import refuses
from results import FIRST, FLOATS, arguments_of, normal, params_of_score, run
from tested import npf

from npformer.gradients import gradcheck
from npformer.gradients.drawing import cast
from npformer.reference.math.scores import SCORES

B, T, S, K, KV, A = 2, 5, 7, 11, 13, 17


def arrays_for(score):
    """``q, k, v, params`` for the score of this name."""
    n_key = KV if SCORES[score][2] else K
    arrays = normal(B, T, K), normal(B, S, n_key, seed=1), normal(B, S, A, seed=2)
    return *arrays, params_of_score(score, K, n_key)


@pytest.mark.parametrize("leading", [(), (2, 1, 3)])
@pytest.mark.parametrize("score", SCORES)
def test_gradients_with_any_number_of_leading_axes(score, leading):
    sizes = {"...": leading, "T": 2, "S": 3}
    f, f_backward, arrays = FIRST[f"{score}_score"].derivative(**sizes)
    gradcheck(f, f_backward, arrays.values(), central_tolerance=None)


@FLOATS
@pytest.mark.parametrize("exponent", [-20, 0, 20])
def test_a_cosine_does_not_depend_on_lengths(dtype, exponent):
    q = normal(B, T, K, dtype=dtype)
    k = normal(B, S, K, seed=1, dtype=dtype)
    scores = npf.cosine_score(q * 10.0**exponent, k * 10.0**-exponent)
    assert_close(scores, npf.cosine_score(q, k), 8 * np.finfo(dtype).eps)
    assert np.abs(scores).max() <= 1 + np.finfo(dtype).eps


def test_a_cosine_of_vectors_whose_largest_entries_are_negative():
    q, k, _, _ = arrays_for("cosine")
    q = np.abs(q)
    k = np.abs(k)
    expected = npf.cosine_score(q, k)
    for factor in (1, 1e200):
        assert_close(npf.cosine_score(-factor * q, -k), expected, 1e-14)
    mixed = np.array([[[1e-3, -1e200]]])  # whose square overflows
    assert_close(npf.cosine_score(mixed, -mixed), [[[-1.0]]], 1e-14)


def test_a_vector_of_zeros_has_no_direction():
    q, k, v, _ = arrays_for("cosine")
    dscores = np.ones((B, T, S))
    clean = npf.cosine_score(q, k)
    clean_dq, _ = npf.cosine_score_backward(dscores, q, k)
    q[0, 1] = 0
    k[1, 2] = 0
    scores = npf.cosine_score(q, k)
    clean[0, 1] = clean[1, :, 2] = 0
    assert_array_equal(scores, clean)
    dq, dk = npf.cosine_score_backward(dscores, q, k)
    assert not dq[0, 1].any()
    assert not dk[1, 2].any()
    assert_array_equal(dq[0, 2:], clean_dq[0, 2:])
    out, _ = npf.score_attention(0 * q, 0 * k, v, "cosine")
    assert np.isfinite(out).all()


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_score_without_gradient_passes_none(score, poison):
    q, k, _, params = arrays_for(score)
    backward = getattr(npf, f"{score}_score_backward")
    dscores = normal(B, T, S)
    dscores[:, 2] = dscores[..., 4] = 0
    clean = backward(dscores, q, k, *params)
    q[:, 2] = k[:, 4] = poison
    poisoned = backward(dscores, q, k, *params)
    for array, wanted in zip(poisoned, clean, strict=True):
        assert np.isfinite(wanted).all()
        assert_array_equal(array, wanted)
    assert not poisoned[0][:, 2].any()
    assert not poisoned[1][:, 4].any()


@pytest.mark.parametrize("name", [*(f"{score}_score" for score in SCORES), "exp_cosine"])
def test_half_precision_is_rounded_once(name):
    """The error is at most half a unit in the last place,
    compared with float64 on the same numbers.
    """
    for operation in (name, f"{name}_backward"):
        arguments = arguments_of(operation, "float16")
        exact = run(npf, operation, cast(arguments, "float64"))
        for array, wanted in zip(run(npf, operation, arguments), exact, strict=True):
            assert array.dtype == "float16"
            unit = np.spacing(np.abs(array)).astype(float)
            assert (np.abs(array - wanted) <= 0.51 * unit + 2e-6).all()


def test_additive_sums_of_half_precision_are_wide():
    """4096 hidden units of 1 each: 2048 + 1 is 2048 in half precision."""
    one = np.ones((1, 1), "float16")
    nine = np.full((1, 4096), 9, "float16")
    assert npf.additive_score(one, one, nine, nine, nine[0] / 9) == 4096


def test_unknown_scores_and_wrong_parameters():
    q, k, v, params = arrays_for("additive")
    refuses(TypeError, "q is a str, expected an array", npf.score_attention, "dot", q, k, v)

    call = partial(npf.score_attention, q, k, v)
    known = "'dot', 'scaled_dot', 'cosine', 'bilinear' or 'additive'"
    refuses(ValueError, rf"score='general', expected {known}", call, "general", params)
    three = r"expected 3 with score='additive': \('w_q', 'w_k', 'w_s"
    refuses(ValueError, f"params has 2 arrays, {three}", call, "additive", params[:2])
    one = r"expected 1 with score='bilinear': \('weight',\)"
    refuses(ValueError, f"params has 0 arrays, {one}", call, "bilinear")
    one = r"expected a tuple of 1 arrays \('weight',\)"
    refuses(TypeError, f"params is a ndarray, {one}", call, "bilinear", np.eye(K, KV))
    with_list = (params[0], params[1].tolist(), params[2])
    refuses(TypeError, "w_k is a list, expected an array", call, "additive", with_list)

    backward = partial(npf.score_attention_backward, np.ones((B, T, A)), q, k, v)
    of_integers = (np.ones((K, A), int), *params[1:])
    message = "w_q has dtype int64, expected a float dtype"
    refuses(TypeError, message, backward, np.ones((B, T, S)), "additive", of_integers)
