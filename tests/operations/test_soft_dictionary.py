"""The dictionary that can learn."""

import numpy as np
from numpy.testing import assert_array_equal
from oracles import assert_close
from refusals import refuses
from results import normal
from tested import npf

from npformer.gradients import gradcheck

B, T, S, K, KV = 2, 5, 7, 11, 13


QUERY = normal(B, T, K)
KEYS = normal(B, S, K, seed=1)
VALUES = normal(B, S, KV, seed=2)
DOUT = normal(B, T, KV, seed=3)


def test_the_hard_lookup_returns_the_value_of_the_key_that_is_the_same():
    query = KEYS[:, [3, 0, 6]]
    assert_array_equal(npf.is_same(query, KEYS), [np.eye(S)[[3, 0, 6]]] * B)
    assert_array_equal(npf.soft_lookup(query, KEYS, VALUES, npf.is_same), VALUES[:, [3, 0, 6]])


def test_keys_that_are_all_the_same_share():
    out = npf.soft_lookup(np.ones((1, K)), np.ones((S, K)), VALUES[0], npf.is_same)
    assert_close(out, VALUES[0].mean(axis=0, keepdims=True))


def test_a_hard_lookup_that_misses_finds_nothing_and_learns_nothing():
    assert not npf.soft_lookup(QUERY, KEYS, VALUES, npf.is_same).any()
    hit = KEYS[:, :T]
    assert_array_equal(npf.soft_lookup(hit, KEYS, VALUES, npf.is_same), VALUES[:, :T])
    # a step: 1 at one point, 0 beside it, and flat there
    assert not npf.soft_lookup(hit + 1e-9, KEYS, VALUES, npf.is_same).any()


def test_it_takes_any_similarity():
    """A kernel smoother: similarity exp(-(query - key)²), with its own backward."""

    def similarity(query, keys):
        return np.exp(-((query - keys.swapaxes(-1, -2)) ** 2))

    def backward(dy, query, keys):
        slope = -2 * dy * (query - keys.swapaxes(-1, -2)) * similarity(query, keys)
        return slope.sum(axis=-1, keepdims=True), -slope.sum(axis=-2)[..., None]

    def lookup(*arrays):
        return npf.soft_lookup(*arrays, similarity)

    def lookup_backward(dout, *arrays):
        return npf.soft_lookup_backward(dout, *arrays, similarity, backward)

    gradcheck(lookup, lookup_backward, [normal(T, 1), normal(S, 1, seed=1), VALUES[0]])


def test_no_similarity_at_all_is_zero_and_passes_nothing():
    def zero(query, keys):
        return np.zeros((B, T, S))

    seen = []

    def backward(dy, query, keys):
        seen.append(dy)
        return query, keys

    *_, dvalues = npf.soft_lookup_backward(DOUT, QUERY, KEYS, VALUES, zero, backward)
    assert not npf.soft_lookup(QUERY, KEYS, VALUES, zero).any()
    assert not seen[0].any()
    assert not dvalues.any()


def test_products_of_dout_and_values_that_overflow_half_precision():
    query = np.ones((3, 64), "float16")
    keys = np.ones((4, 64), "float16")
    similarity = npf.exp_cosine, npf.exp_cosine_backward
    arrays = 200 * query, query, keys, 200 * keys
    dquery, dkeys, dvalues = npf.soft_lookup_backward(*arrays, *similarity)
    assert not dquery.any()
    assert not dkeys.any()
    assert (dvalues == 150).all()


def test_similarities_that_do_not_fit():
    message = r"similarities has shape \(3,\), expected \(2, 5, 7\)"
    refuses(ValueError, message, npf.soft_lookup, QUERY, KEYS, VALUES, lambda *_: np.ones(3))
