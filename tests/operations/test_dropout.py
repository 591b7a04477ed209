"""The bits of dropout are a pure function of (key, element index), and as good as random."""

import sys
from functools import lru_cache
from itertools import combinations

import numpy as np
import oracles
import pytest
from numpy.testing import assert_array_equal
from tested import npf

from npformer.cpu.draws import dropout_arguments
from npformer.cpu.jit import kernel
from npformer.cpu.kernels.dropout import drop_row
from npformer.reference.math.dropout import dropout_keep

N = 2**18
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
def test_bits_in_python_integers(key):
    for start in (0, 2**31 - 5, 2**32 - 5, 2**40, 2**62):
        drawn = bits(key, 10, start)
        assert drawn.tolist() == [oracles.random_bits(start + i, key) for i in range(10)]
        assert drawn.dtype == np.uint32


def test_index_dtype_does_not_matter():
    for dtype in ("int32", "uint32", "uint64"):
        assert_array_equal(npf.random_bits(np.arange(100, dtype=dtype), 7), bits(7, 100))


# As good as random: bounds of 6 standard deviations.


@pytest.mark.parametrize("key", KEYS)
def test_bits_are_uniform(key):
    expected = N / 256
    for of_byte in bits(key).view(np.uint8).reshape(N, 4).T:
        counts = np.bincount(of_byte, minlength=256)
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi_square - 255) < 6 * np.sqrt(2 * 255)


@pytest.mark.parametrize("key", KEYS)
def test_bits_of_neighbours_are_uncorrelated(key):
    words = bits(key)
    for distance in (1, 2, 7, 64, 512, 65536):
        assert_independent(words[:-distance], words[distance:])


@pytest.mark.parametrize("key", KEYS)
def test_bits_of_neighbouring_keys_are_uncorrelated(key):
    [sub_key] = npf.split_key(key, 1)
    for other in (key + 1, key ^ (1 << 33), -key - 1, sub_key):
        assert_independent(bits(key), bits(other))
        assert_independent(bits(key)[:-1], bits(other)[1:])


def test_bits_of_sub_keys_are_uncorrelated():
    for first, second in combinations(npf.split_key(2024, 3), 2):
        assert_independent(bits(first), bits(second))


def assert_independent(a, b):
    """Half of the bits agree, place by place and over all."""
    n = len(a)
    bits_of_bytes = np.arange(256)[:, None] >> np.arange(8) & 1
    for differing in (a ^ b).view(np.uint8).reshape(n, 4).T:
        ones = np.bincount(differing, minlength=256) @ bits_of_bytes
        assert (abs(ones - n / 2) < 6 * np.sqrt(n) / 2).all()
    x = a - a.mean()
    y = b - b.mean()
    assert abs(x @ y) < 6 / np.sqrt(n) * np.sqrt(x @ x * (y @ y))


@pytest.mark.parametrize("key", KEYS)
def test_rate(key):
    for rate in (0.01, 0.1, 0.5, 0.9, 0.999):
        n_dropped = N - np.count_nonzero(npf.dropout(np.ones(N), rate, key))
        assert abs(n_dropped - N * rate) < 6 * np.sqrt(N * rate * (1 - rate))


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
def test_the_threshold_is_rounded(k, monkeypatch):
    bits = np.array([k - 1, k, k + 1], np.uint32)
    module = sys.modules["npformer.reference.math.dropout"]
    monkeypatch.setattr(module, "bits_of", lambda index, dropout_key: bits)
    for excess, middle_is_kept in ((0.4, True), (0.6, False)):
        rate = (k + excess) / (2**32 - 1)
        kept = module.dropout_keep(np.arange(3), rate, dropout_key=1)
        assert kept.tolist() == [False, middle_is_kept, True]


@kernel
def drop(x, y, first, dropout):
    drop_row(x, y, first, dropout)


@pytest.mark.parametrize("first", [0, 2**32 - 40, 2**32 - 100, 2**32, 2**40 + 7])
def test_a_row_of_a_kernel_may_begin_anywhere_in_a_large_array(first):
    x = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    y = np.empty_like(x)
    dropout = dropout_arguments(0.3, 2024, x.dtype)
    drop(x, y, first, dropout)
    keep = dropout_keep(np.arange(first, first + 100), 0.3, 2024)
    _, kept_scale = dropout
    assert_array_equal(y, np.where(keep, x * kept_scale, 0))
