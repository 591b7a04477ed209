"""The worked examples of the texts from which attention is taught, number by number."""

import math

import numpy as np
import pytest
from oracles import assert_close
from tested import npf

pytestmark = pytest.mark.usefixtures("every_backend")

ROWS = np.array([[1.0, 2, 3, 4, 5], [4, 5, 6, 7, 8], [7, 8, 9, 10, 11]])
SCORES_OF_ROWS = np.array([[55.0, 100, 145], [100, 190, 280], [145, 280, 415]])


# A soft dictionary: similarities 0.1, 0.9, 0.7 to keys whose values are 9, 2, 3.


def test_the_soft_dictionary():
    one = np.ones((1, 1))
    values = np.array([[9.0], [2.0], [3.0]])
    similarities = np.array([[0.1, 0.9, 0.7]])
    out = npf.soft_lookup(one, values, values, lambda query, keys: similarities)
    assert_close(out, [[4.8 / 1.7]], 1e-15)
    assert out.round(3).item() == 2.824
    of_attention, weights = npf.attention(one, np.log(similarities.T), values)
    assert_close(of_attention, out)
    assert_close(weights, similarities / 1.7)


# Scaled dot-product attention.


def test_scores_of_the_three_rows():
    assert npf.product(ROWS, ROWS.T).tolist() == SCORES_OF_ROWS.tolist()
    assert npf.dot_score(ROWS, ROWS).tolist() == SCORES_OF_ROWS.tolist()
    assert_close(npf.scaled_dot_score(ROWS, ROWS), SCORES_OF_ROWS / math.sqrt(5))


def test_weights_of_the_three_rows():
    """Scores so far apart that all weight is on the last row, unless they are made much smaller."""
    below_the_largest = SCORES_OF_ROWS - SCORES_OF_ROWS[:, 2:]
    for scale in (1 / math.sqrt(5), 0.01):
        e = np.exp(scale * below_the_largest)
        _, weights = npf.attention(ROWS, ROWS, ROWS, scale=scale)
        assert_close(weights, e / e.sum(axis=-1, keepdims=True))
    out, weights = npf.attention(ROWS, ROWS, ROWS)
    assert weights.round(6).tolist() == [[0, 0, 1]] * 3
    assert out.round(6).tolist() == [[7, 8, 9, 10, 11]] * 3


def test_all_ones():
    """Three words that are all the same.

    q kᵀ is 2, scaled √2, every weight 1/3, the answer the mean of the values.
    """
    ones = np.ones((3, 2))
    values = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 5.0]])
    assert npf.dot_score(ones, ones).tolist() == [[2, 2, 2]] * 3
    assert_close(npf.scaled_dot_score(ones, ones), np.full((3, 3), math.sqrt(2)))
    out, weights = npf.attention(ones, ones, values)
    assert_close(weights, np.full((3, 3), 1 / 3))
    assert_close(out, [[1, 2]] * 3)
    causal, _ = npf.attention(ones, ones, values, causal=True)
    assert_close(causal, [[1, 0], [0.5, 0.5], [1, 2]])
    assert_close(npf.attention(ones, ones, ones)[0], ones)


# Positions.


def test_first_angular_frequencies_of_width_128():
    """At position 1 the sines are sin(1 / 10000^(2i/128)).

    The first frequencies, "div_term", are 1, 0.8660, 0.7499.
    """
    encoding = npf.sinusoidal_encoding(5000, 128)
    assert encoding.shape == (5000, 128)
    frequencies = np.arcsin(encoding[1, 0::2])
    assert frequencies[:3].round(4).tolist() == [1.0, 0.8660, 0.7499]
    assert_close(frequencies, 10000.0 ** (-np.arange(64) / 64), 1e-15)
    assert encoding[0].tolist() == [0, 1] * 64
