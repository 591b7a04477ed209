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


NO_TREES = [None, "params", abs, {"a": {"weight": [1.0]}}]


@pytest.mark.parametrize("given", NO_TREES, ids=["None", "text", "function", "list"])
@pytest.mark.parametrize(
    "take", [tree.flatten, tree.count, tree.not_finite], ids=lambda take: take.__name__
)
def test_what_is_no_tree_of_arrays_is_named(take, given):
    place = (
        r"a list at a\.weight"
        if isinstance(given, dict)
        else f"a {type(given).__name__} at its root"
    )
    with pytest.raises(TypeError, match=f"the tree has {place}, expected an array"):
        take(given)


def test_wrong_arguments_of_trees_are_named():
    for call, message in [
        (
            lambda: tree.from_arrays(None, "params"),
            "arrays is a NoneType, expected a nested dict of arrays",
        ),
        (
            lambda: tree.leaves_under("x", "params"),
            "arrays is a str, expected a nested dict of arrays",
        ),
        (
            lambda: tree.ordered_like(None, {}),
            "tree is a NoneType, expected a nested dict of arrays",
        ),
        (
            lambda: tree.ordered_like({}, None),
            "like is a NoneType, expected a nested dict of arrays",
        ),
        (
            lambda: tree.merged(example(), np.ones(3)),
            r"new is float64 of shape \(3,\), expected a nested dict of arrays",
        ),
        (lambda: tree.view_as(None, example()), "flat is a NoneType, expected an array"),
        (lambda: tree.map_leaves(example(), np.add), "f is a dict, expected a function of arrays"),
        (
            lambda: tree.check_like(example(), None),
            "expected is a NoneType, expected a nested dict of arrays",
        ),
        (
            lambda: tree.from_leaves(None),
            r"leaves is a NoneType, expected pairs such as \('output.bias', array\)",
        ),
        (
            lambda: tree.from_leaves({"a": 1}),
            r"leaves is a dict, expected pairs .*: try leaves\.items\(\)",
        ),
        (lambda: tree.from_leaves(["a", "b"]), "leaves has 'a', expected pairs"),
    ]:
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(ValueError, match="the tree has no arrays, expected one or more"):
        tree.flatten({})


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
        ValueError,
        match=(
            "^trees differ at b: float64 of shape .* against float64 of shape .* against nothing$"
        ),
    ):
        tree.map_leaves(lambda *x: x, example(), example(), {"a": example()["a"]})
    with pytest.raises(ValueError, match="^trees differ at a: a dict against nothing$"):
        tree.map_leaves(np.add, {"a": {}}, {"b": {}})
    with pytest.raises(ValueError, match="the buffer has 11 numbers, the tree 10"):
        tree.view_as(np.zeros(11), example())
