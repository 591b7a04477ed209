"""Sums of shards: the same bits for any division among ranks."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal

from npformer.reference.math.update import NORM_BLOCK
from npformer.runtime.chunks import chunks_of
from npformer.runtime.ranks import share_of
from npformer.runtime.sums import subtrees, tree_sum

MOST = 40


@given(st.integers(1, MOST), st.integers(1, MOST), st.randoms(use_true_random=False))
def test_any_number_of_ranks_gets_the_same_bits(n, size, random):
    sizes = [10 ** random.randint(-4, 4) for _ in range(n)]
    leaves = [np.float32(size * random.uniform(-1, 1)) for size in sizes]
    parts = {(i, i + 1): x for i, x in enumerate(leaves)}
    whole = tree_sum(parts, 0, n)
    found = {}
    for rank in range(size):
        for start, stop in subtrees(0, n, share_of(range(n), rank, size)):
            assert (start, stop) not in found
            found[start, stop] = tree_sum(parts, start, stop)
    assert sum(stop - start for start, stop in found) == n
    assert tree_sum(found, 0, n) == whole
    assert abs(whole - np.sum(leaves, dtype=np.float64)) <= 1e-5 * np.abs(leaves).max()


@pytest.mark.parametrize(("n", "size"), [(8, 1), (8, 4), (12, 3), (24, 6), (5, 5), (48, 12)])
def test_ranks_send_one_sum_each_where_they_divide_the_tree(n, size):
    for rank in range(size):
        share = share_of(range(n), rank, size)
        assert len(subtrees(0, n, share)) == 1


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_sum_is_written_to_out_which_may_be_a_part(n):
    arrays = [np.full(3, 10.0**i) for i in range(n)]
    before = np.copy(arrays)
    parts = {(i, i + 1): x for i, x in enumerate(arrays)}
    out = np.zeros(3)
    assert tree_sum(parts, 0, n, out=out) is out
    assert_array_equal(out, before.sum(axis=0))
    assert_array_equal(arrays, before)
    last = arrays[-1]
    assert tree_sum(parts, 0, n, out=last) is last
    assert_array_equal(last, out)


@pytest.mark.parametrize(("n", "size"), [(1, 3), (100_000, 2), (10**7, 1000)])
def test_chunks_divide_everything_among_the_ranks(n, size):
    owned = []
    for rank in (0, size // 2, size - 1):
        chunks = chunks_of(n, rank, size, NORM_BLOCK)
        n_left = n
        n_owned = 0
        for chunk in chunks:  # the last one first
            assert chunk.place.stop == n_left
            n_left -= sum(chunk.counts)
            assert chunk.place.start == n_left
            assert chunk.own == chunk.pieces[rank]
            assert chunk.joined == slice(n_owned, n_owned + chunk.counts[rank])
            assert not any(x.start % NORM_BLOCK for x in chunk.pieces if x.start < x.stop)
            n_owned = chunk.joined.stop
        assert n_left == 0
        owned.append(n_owned)
    assert max(owned) - min(owned) <= NORM_BLOCK * len(chunks)
