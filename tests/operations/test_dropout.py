"""The bits of dropout are a pure function of (key, element index), and as good as random."""

import sys
from functools import lru_cache
from itertools import combinations

import numpy as np
import oracles
import pytest
from tested import npf

N = 1_000_000
KEYS = [0, 1, 2024, 2**63, 2**64 - 1]


@lru_cache(maxsize=8)
def bits(key, n=N, start=0):
    return npf.random_bits(np.arange(start, start + n), key)


# The function itself, so that no backend and no later version can drift.


def test_frozen_bits():
    assert bits(0, 4).tolist() == [4204088601, 598980972, 3000669939, 901121361]
    assert bits(2024, 2, start=2**32 - 1).tolist() == [855445202, 2286420306]
    assert bits(2**63, 2, start=10**12).tolist() == [2823410090, 2528984164]


def test_frozen_keys():
    assert npf.split_key(7, 3) == [2875738036014693257, 16129155333475108587, 17670481865470212032]
    assert npf.derive_key(7, 1, 2) == 16086372263932350896


@pytest.mark.parametrize("key", [*KEYS, -1, -(2**63)])
@pytest.mark.parametrize("start", [0, 2**31 - 5, 2**32 - 5, 2**40, 2**62])
def test_bits_in_python_integers(key, start):
    drawn = bits(key, 10, start)
    assert drawn.tolist() == [oracles.random_bits(start + i, key) for i in range(10)]
    assert drawn.dtype == np.uint32


def test_index_dtype_does_not_matter():
    for dtype in ("int32", "uint32", "uint64"):
        assert npf.random_bits(np.arange(100, dtype=dtype), 7).tolist() == bits(7, 100).tolist()


# As good as random: bounds of 6 standard deviations.


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_bits_are_uniform(key, shift):
    counts = np.bincount((bits(key) >> np.uint32(shift)) & 255, minlength=256)
    chi_square = ((counts - N / 256) ** 2 / (N / 256)).sum()
    assert abs(chi_square - 255) < 6 * np.sqrt(2 * 255)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("distance", [1, 2, 7, 64, 512, 65536])
def test_bits_of_neighbours_are_uncorrelated(key, distance):
    words = bits(key)
    assert_independent(words[:-distance], words[distance:])


@pytest.mark.parametrize("key", KEYS)
def test_bits_of_neighbouring_keys_are_uncorrelated(key):
    for other in (key + 1, key ^ (1 << 33), -key - 1, npf.split_key(key, 1)[0]):
        assert_independent(bits(key), bits(other))
        assert_independent(bits(key)[:-1], bits(other)[1:])


def test_bits_of_sub_keys_are_uncorrelated():
    for first, second in combinations(npf.split_key(2024, 3), 2):
        assert_independent(bits(first), bits(second))


def assert_independent(a, b):
    """Half of the bits agree, place by place and over all."""
    n = len(a)
    bits_of_bytes = np.arange(256)[:, None] >> np.arange(8) & 1
    for some in (a ^ b).view(np.uint8).reshape(n, 4).T:
        ones = np.bincount(some, minlength=256) @ bits_of_bytes
        assert (abs(ones - n / 2) < 6 * np.sqrt(n) / 2).all()
    x, y = a - a.mean(), b - b.mean()
    assert abs(x @ y) < 6 / np.sqrt(n) * np.sqrt(x @ x * (y @ y))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9, 0.999])
def test_rate(key, rate):
    dropped = (npf.dropout(np.ones(N), rate, key) == 0).sum()
    assert abs(dropped - N * rate) < 6 * np.sqrt(N * rate * (1 - rate))


def test_keys_of_a_split_are_distinct():
    keys = [key for parent in range(100) for key in npf.split_key(parent, 100)]
    assert len(set(keys)) == 10_000
    assert all(0 <= key < 2**64 for key in keys)


def test_split_is_deterministic_and_extends():
    assert npf.split_key(7, 5)[:3] == npf.split_key(7, 3)
    assert npf.split_key(None, 2) == [None, None]


# What is dropped, and rates at the ends of the range.


def test_dropped_entries_are_zero_whatever_they_held():
    x = np.ones(1000)
    dropped = npf.dropout(x, 0.3, 1) == 0
    x[dropped] = np.nan
    assert np.isfinite(npf.dropout(x, 0.3, 1)).all()


def test_rate_of_zero_returns_the_input():
    x = np.ones(7)
    assert npf.dropout(x, 0.0, None) is x
    assert npf.dropout(x, 0, 5) is x


def test_rate_next_to_one():
    assert not npf.dropout(np.ones(1000), 1 - 1e-12, 1).any()


@pytest.mark.parametrize("k", [1000, 2**32 - 5])
@pytest.mark.parametrize(
    ("excess", "kept"), [(0.4, [False, True, True]), (0.6, [False, False, True])]
)
def test_the_threshold_is_rounded(k, excess, kept, monkeypatch):
    bits = np.array([k - 1, k, k + 1], np.uint32)
    module = sys.modules["npformer.reference.math.dropout"]
    monkeypatch.setattr(module, "bits_of", lambda index, dropout_key: bits)
    rate = (k + excess) / (2**32 - 1)
    assert module.dropout_keep(np.arange(3), rate, dropout_key=1).tolist() == kept
