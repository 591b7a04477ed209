"""``nf.batches``: rows of arrays, in a new order in each epoch."""

import re
from itertools import islice
from operator import length_hint

import numpy as np
import pytest
from refusals import refuses

import npformer as nf

X = np.arange(22).reshape(11, 2)
Y = np.arange(11)


SIZES = [(1, False), (4, False), (11, False), (50, False), (1, True), (4, True), (11, True)]


@pytest.mark.parametrize(("size", "drop_last"), SIZES)
def test_each_row_comes_once_an_epoch_beside_its_own(size, drop_last):
    batches = nf.batches(X, Y, size=size, epochs=3, drop_last=drop_last)
    found = list(batches)
    assert len(found) == len(batches) == length_hint(batches)
    n = len(found) // 3
    left_over = 11 % size if size < 11 else 0
    n_rows = 11 - left_over if drop_last else 11
    for first in range(0, 3 * n, n):
        labels = np.concatenate([labels for _, labels in found[first : first + n]])
        assert len(set(labels)) == len(labels) == n_rows
    for rows, labels in found:
        np.testing.assert_array_equal(rows, X[labels])
        assert len(labels) in {min(size, 11), left_over}


def test_epochs_and_seeds_have_orders_of_their_own_and_repeat():
    def order(**options):
        return [tuple(labels) for (labels,) in nf.batches(Y, size=11, epochs=2, **options)]

    first, second = order()
    assert first != second
    assert order() == [first, second] != order(seed=1)
    assert order(shuffle=False) == [tuple(range(11))] * 2


def labels_in(batches, n=9):
    """The labels of the next batches."""
    return [labels.tolist() for (labels,) in islice(batches, n)]


@pytest.mark.parametrize("epochs", [3, None])
@pytest.mark.parametrize("step", [0, 1, 3, 4, 7])
def test_from_a_step_on_come_the_batches_that_are_left(step, epochs):
    batches = nf.batches(Y, size=4, epochs=epochs)
    rest = batches.from_step(step)
    if epochs:
        assert len(rest) == 9 - step
    assert labels_in(rest, 9 - step) == labels_in(batches)[step:]
    assert list(nf.batches(Y, size=4, epochs=1).from_step(99)) == []
    twice = batches.from_step(1).from_step(2)
    assert labels_in(twice, 1) == labels_in(batches.from_step(3), 1)


def test_batches_without_end_have_no_length():
    batches = nf.batches(Y, size=4, epochs=None)
    assert length_hint(batches) == 0
    refuses(TypeError, "never end: they have no length", len, batches)
    assert "without end" in repr(batches)


def test_rows_of_different_lengths_are_padded_to_the_longest_of_their_batch():
    rows = [[5, 6, 7], [8], [], [9, 4], [3, 3, 3, 3]]
    batches = list(nf.batches(rows, np.arange(5), size=2, pad_id=1, shuffle=False))
    padded = [[[5, 6, 7], [8, 1, 1]], [[1, 1], [9, 4]], [[3, 3, 3, 3]]]
    assert [ids.tolist() for ids, _ in batches] == padded
    assert labels_in(((labels,) for _, labels in batches)) == [[0, 1], [2, 3], [4]]
    assert all(ids.dtype == np.int64 for ids, _ in batches)


def test_what_makes_no_batches_is_refused():
    def bad(message, *arrays, size=2, **options):
        errors = ValueError, TypeError
        refuses(errors, re.escape(message), nf.batches, *arrays, size=size, **options)

    bad("size=0, expected", X, Y, size=0)
    bad("size=2.5", X, Y, size=2.5)
    none = "size=12 with 11 rows and drop_last=True: there would be no batch"
    bad(none, X, Y, size=12, drop_last=True)
    bad("drop_last='x' is a str", X, Y, size=12, drop_last="x")
    bad("arrays have [11, 4] rows, expected the same number in all", X, Y[:4])
    bad("batches got no arrays, expected one or more")
    bad("arrays have no rows, expected one or more", X[:0])
    bad("array 0 is a ", iter(X))
    bad("array 0 has no axis, expected rows", np.float64(3))
    bad("array 0 is a dict, expected an array, or a list", {"x": X})
    bad("array 0", memoryview(b"abc"))
    objects = np.array([[1], [2, 3]], object)
    bad("array 0 has dtype object, expected numbers", objects)
    bad("array 0 has rows of different lengths, expected pad_id=", [[1, 2], [3]])
    for tgt in (np.zeros((4, 3)), np.zeros((4, 6))):
        bad("array 0 is a tuple of arrays, expected an array", (np.zeros((4, 3)), tgt))
    lists = "array 0, row 0 holds lists of different lengths"
    bad(lists, [[1, [2, 3]], [4]], pad_id=0)
    bad("array 0, row 1 has 9223372036854775808", [[1, 2], [2**63]], pad_id=0)
    large = np.array([2**63 + 5], np.uint64)
    bad("expected token ids that int64", [large, [1, 2]], pad_id=0)
    numbers = "array 0, row 1 is float64 of shape (1,), expected token ids"
    bad(numbers, [[1, 2], [0.5]], pad_id=0)
    bad("pad_id=9223372036854775808, expected", X, pad_id=2**63)
    bad("epochs=0, expected", X, epochs=0)
    bad("epochs=", X, epochs=iter([1]))
    bad("seed=-1, expected", X, seed=-1)
    bad("shuffle='no' is a str, expected True or False", X, shuffle="no")
    refuses(ValueError, "step=-1, expected", nf.batches(X, size=2).from_step, -1)
