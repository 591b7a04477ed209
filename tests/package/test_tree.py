import re
from functools import partial

import numpy as np
from refusals import refuses

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


def test_what_is_no_tree_of_arrays_is_named():
    for take in (tree.flatten, tree.count, tree.not_finite):
        refused = partial(refuses, TypeError)
        refused("the tree has a NoneType at its root, expected an array", take, None)
        refused("the tree has a str at its root, expected an array", take, "params")
        refused("the tree has a builtin.* at its root, expected an array", take, abs)
        message = r"the tree has a list at a\.weight, expected an array"
        refused(message, take, {"a": {"weight": [1.0]}})


def test_wrong_arguments_of_trees_are_named():
    refused = partial(refuses, TypeError)
    expected = "expected a nested dict of arrays"
    refused(f"arrays is a NoneType, {expected}", tree.from_arrays, None, "params")
    refused(f"arrays is a str, {expected}", tree.leaves_under, "x", "params")
    refused(f"tree is a NoneType, {expected}", tree.ordered_like, None, {})
    refused(f"like is a NoneType, {expected}", tree.ordered_like, {}, None)
    new = r"new is float64 of shape \(3,\)"
    refused(f"{new}, {expected}", tree.merged, example(), np.ones(3))
    refused("flat is a NoneType, expected an array", tree.view_as, None, example())
    refused("f is a dict, expected a function of arrays", tree.map_leaves, example(), np.add)
    refused(f"expected is a NoneType, {expected}", tree.check_like, example(), None)
    pairs = r"leaves is a NoneType, expected pairs such as \('output.bias', array\)"
    refused(pairs, tree.from_leaves, None)
    items = r"leaves is a dict, expected pairs .*: try leaves\.items\(\)"
    refused(items, tree.from_leaves, {"a": 1})
    refused("leaves has 'a', expected pairs", tree.from_leaves, ["a", "b"])
    refuses(ValueError, "the tree has no arrays, expected one or more", tree.flatten, {})


def test_trees_that_differ_are_refused():
    def differ(difference, *trees):
        message = f"^trees differ at {re.escape(difference)}$"
        refuses(ValueError, message, tree.map_leaves, lambda *arrays: arrays, *trees)

    whole = example()
    wide = "float64 of shape (2, 3)"
    differ("a: a dict against a int", whole, {"a": 1})
    few = {"a": {"bias": 1}, "b": 1}
    differ(f"a.weight: {wide} against nothing", whole, few)
    differ("c: nothing against a dict", whole, whole | {"c": {0: 1}})
    deeper = {"a": {"weight": {}, "bias": 1}, "c": 1}
    differ(f"a.weight: {wide} against a dict", whole, deeper)
    differ("their roots: a dict against float64 of shape (3,)", whole, np.ones(3))
    number = "float64 of shape ()"
    three = [whole, whole, {"a": whole["a"]}]
    differ(f"b: {number} against {number} against nothing", *three)
    differ("a: a dict against nothing", {"a": {}}, {"b": {}})
    message = "the buffer has 11 numbers, the tree 10"
    refuses(ValueError, message, tree.view_as, np.zeros(11), whole)
