import re

import numpy as np
import pytest

from npformer import tree


def example():
    return {"a": {"weight": np.arange(6.0).reshape(2, 3), "bias": np.ones(3)}, "b": np.array(7.0)}


def test_flatten_copies_and_its_views_share_the_buffer():
    original = example()
    flat, views = tree.flatten(original)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 1, 1, 1, 7]
    views["a"]["weight"][0, 0] = 100
    flat[-1] = 200
    assert flat[0] == 100
    assert views["b"] == 200
    assert original["a"]["weight"][0, 0] == 0
    assert [path for path, _ in tree.leaves(views)] == ["a.weight", "a.bias", "b"]
    assert tree.count(views) == flat.size


def test_add_sums_what_stands_at_the_same_place():
    total = tree.map_leaves(np.add, example(), example())
    assert total["a"]["weight"][1, 2] == 10
    assert total["b"] == 14


def test_trees_that_differ_are_refused():
    wide = "float64 of shape (2, 3)"
    for other, difference in (
        ({"a": 1}, "a: a dict against a int"),
        ({"a": {"bias": 1}, "b": 1}, f"a.weight: {wide} against nothing"),
        ({**example(), "c": {0: 1}}, "c: nothing against a dict"),
        ({"a": {"weight": {}, "bias": 1}, "c": 1}, f"a.weight: {wide} against a dict"),
        (np.ones(3), "their roots: a dict against float64 of shape (3,)"),
    ):
        with pytest.raises(ValueError, match=f"^trees differ at {re.escape(difference)}$"):
            tree.map_leaves(np.add, example(), other)
    with pytest.raises(
        ValueError, match="^trees differ at b: float64 of shape .* against float64 of shape .* against nothing$"
    ):
        tree.map_leaves(lambda *x: x, example(), example(), {"a": example()["a"]})
    with pytest.raises(ValueError, match="^trees differ at a: a dict against nothing$"):
        tree.map_leaves(np.add, {"a": {}}, {"b": {}})
    with pytest.raises(ValueError, match="the buffer has 11 numbers, the tree 10"):
        tree.view_as(np.zeros(11), example())
