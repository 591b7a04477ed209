"""A query that may attend to nothing gets exact zeros, and masked entries never matter.

Both are tested over several tiles, too. ``test_poison.py`` holds the second for every operation and
every mask of the table.
"""

import numpy as np
import oracles
import pytest
from numpy.testing import assert_array_equal
from refusals import refuses
from results import (
    ATTENTIONS,
    BOTH_ATTENTIONS,
    assert_equal_within,
    attend,
    normal,
    params_of_score,
)
from tested import npf

from npformer import reference

pytestmark = pytest.mark.usefixtures("every_backend")

B, H, T, S, K, KV, V = 2, 3, 5, 7, 11, 13, 23
POISONS = [np.nan, np.inf, -np.inf]
OTHERS = [0, 1, 3, 4]  # the queries except for one


def inputs(score="", n_queries=T, n_keys=S):
    """``[q, k, v, dout]``, and the parameters of a score."""
    shapes = [(n_queries, K), (n_keys, K), (n_keys, KV), (n_queries, KV)]
    arrays = [normal(B, H, *shape, seed=seed) for seed, shape in enumerate(shapes)]
    return arrays, params_of_score(score, K, K)


def assert_same_bits(actual, expected):
    """Equal bit for bit, unless a kernel meets NaN.

    Then the reference computes the result, with other rounding.
    """
    assert all(np.isfinite(wanted).all() for wanted in expected)
    bound = 0 if npf.attention is reference.attention else 32
    assert_equal_within(bound, "float64", actual, expected)


# Fully masked rows.


@pytest.mark.parametrize("name", ATTENTIONS)
def test_query_that_may_attend_to_nothing(name):
    keep_mask = np.ones((T, S), bool)
    keep_mask[2] = False
    (q, k, v, dout), params = inputs(name)
    out, dq, *others = attend(name, q, k, v, dout, keep_mask, params=params)
    for array in (out, dq):
        assert not array[..., 2, :].any()
        assert array[..., OTHERS, :].all()
    q = q[..., OTHERS, :]
    dout = dout[..., OTHERS, :]
    _, _, *without = attend(name, q, k, v, dout, params=params)
    oracles.assert_all_close(others, without)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_nothing_may_attend_to_anything(name):
    arrays, params = inputs(name)
    for array in attend(name, *arrays, np.zeros((T, S), bool), params=params):
        assert not array.any()


@BOTH_ATTENTIONS
def test_causal_with_more_queries_than_keys(name):
    arrays, _ = inputs(n_queries=9, n_keys=7)
    out, dq, *_ = attend(name, *arrays, causal=True)
    for array in (out, dq):
        assert not array[..., :2, :].any()
        assert array[..., 3:, :].all()


def test_softmax_of_a_row_of_minus_infinity():
    hidden = -np.inf
    x = np.array([[hidden, hidden], [0.0, hidden]])
    y = npf.softmax(x)
    assert y.tolist() == [[0, 0], [1, 0]]
    assert not npf.softmax_backward(np.full((2, 2), 3.0), y).any()
    assert npf.log_softmax(x).tolist() == [[hidden, hidden], [0, hidden]]


# Poison: the run with NaN or inf in a masked place gives the same bits as the run without.


def both(name, arrays, poisoned, **options):
    """The results before and after these parts of the arrays have become poison."""
    before = attend(name, *arrays, **options)
    for part, poison in poisoned:
        part[...] = poison
    return attend(name, *arrays, **options), before


@BOTH_ATTENTIONS
@pytest.mark.parametrize("poison", POISONS)
def test_the_future_may_hold_anything(name, poison):
    arrays, _ = inputs(n_queries=S)
    future = [(x[..., 4:, :], poison) for x in arrays]
    poisoned, clean = both(name, arrays, future, causal=True)
    assert_same_bits(rows(poisoned, slice(4)), rows(clean, slice(4)))


def rows(results, which):
    """These rows of the output, and of the gradient of the queries."""
    return [x[..., which, :] for x in results[:2]]


@BOTH_ATTENTIONS
def test_poison_in_every_masked_place_over_several_tiles(name):
    arrays, _ = inputs(n_queries=131, n_keys=130)
    q, k, v, dout = arrays
    keep_mask = np.ones((131, 130), bool)
    keep_mask[:, 60:70] = keep_mask[62:66] = False
    hidden = [(x[..., 60:70, :], np.nan) for x in (k, v)]
    hidden += [(x[..., 62:66, :], np.nan) for x in (q, dout)]
    poisoned, clean = both(name, arrays, hidden, keep_mask=keep_mask, causal=True)
    assert_same_bits(poisoned, clean)


# A NaN that is not masked has to show.


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("place", [1, 2], ids=["k", "v"])
def test_honest_nan_shows_in_the_queries_that_see_it(name, place):
    keep_mask = np.ones((T, S), bool)
    keep_mask[2, 4] = False
    arrays, params = inputs(name)
    seen = [(arrays[place][..., 4, :], np.nan)]
    poisoned, clean = both(name, arrays, seen, keep_mask=keep_mask, params=params)
    for x in rows(poisoned, OTHERS):
        assert np.isnan(x).any(axis=-1).all()
    assert_same_bits(rows(poisoned, 2), rows(clean, 2))


@BOTH_ATTENTIONS
@pytest.mark.parametrize("place", [1, 2], ids=["k", "v"])
@pytest.mark.parametrize("poison", [np.inf, -np.inf])
def test_honest_infinity_shows(name, place, poison):
    arrays, _ = inputs()
    arrays[place][..., 4, :] = poison
    for x in rows(attend(name, *arrays), slice(None)):
        assert not np.isfinite(x).all()


# The product in which 0 annihilates.


@pytest.mark.parametrize("seed", range(20))
def test_product_of_arrays_with_holes(seed):
    """Zero times anything is zero, and anything else times NaN or infinity is NaN."""
    rng = np.random.default_rng(seed)

    def with_holes(*shape):
        x = rng.integers(-3, 4, shape).astype(float)
        for value, share in ((np.nan, 0.05), (np.inf, 0.03), (-np.inf, 0.03), (0, 0.4)):
            x[rng.random(shape) < share] = value
        return x

    a = with_holes(T, S)
    b = with_holes(S, K)
    expected = oracles.product(a, b)
    assert np.isnan(expected).any()
    assert np.isfinite(expected).any()
    assert_array_equal(npf.product(a, b), expected)
    assert_array_equal(npf.product(np.stack([a, a]), np.stack([b, b])), [expected, expected])


# The additive form.


def test_additive_form_and_back():
    keep_mask = normal(T, S) > 0
    for dtype in ("float16", "float32", "float64"):
        additive = npf.to_additive(keep_mask, dtype)
        assert additive.dtype == dtype
        assert_array_equal(additive, np.where(keep_mask, 0, -np.inf))
        assert_array_equal(npf.from_additive(additive), keep_mask)
        assert npf.from_additive(additive).dtype == bool


def test_other_additive_masks_are_refused():
    message = r"mask holds .*, expected only 0 \(may attend\) and -inf \(may not\)"
    for value in (-1e9, 1.0, np.inf, np.nan):
        refuses(ValueError, message, npf.from_additive, np.array([0.0, value]))
