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
    with pytest.raises(ValueError, match="trees differ"):
        tree.map_leaves(np.add, example(), {"a": 1})
    with pytest.raises(ValueError, match="the buffer has 11 numbers, the tree 10"):
        tree.view_as(np.zeros(11), example())
