"""Functions of trees (nested dicts of arrays, such as parameters), also as one flat buffer."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from npformer.arrays import Array, has_own_rules
from npformer.errors import UserError

NOTHING = object()  # where a tree has no leaf of this name
DEEPEST = 100  # levels of dicts (and lists, in JSON), far from Python's limit of recursion


def leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    """List the (path, array) pairs of a nested dict, in order; a path is like
    ``encoder.0.attention.qkv.weight``.

    >>> [path for path, _ in leaves({"a": {"weight": 1, "bias": 2}, "b": 3})]
    ['a.weight', 'a.bias', 'b']
    """
    if not isinstance(tree, dict):
        return [(path, tree)]
    prefix = f"{path}." if path else ""
    pairs = []
    for name, child in tree.items():
        pairs += leaves(child, f"{prefix}{name}")
    return pairs


def first_leaf(tree: Any) -> Any:
    """The first of the arrays that ``leaves`` lists, or None.

    >>> first_leaf({"a": {}, "b": {"weight": 1, "bias": 2}})
    1
    """
    if not isinstance(tree, dict):
        return tree
    for child in tree.values():
        leaf = first_leaf(child)
        if leaf is not None:
            return leaf
    return None


def is_in(path: str, name: str) -> bool:
    """Whether the path of a leaf is ``name`` or begins with it.

    >>> is_in("encoder.0.attention", "encoder.0"), is_in("encoder.01.attention", "encoder.0")
    (True, False)
    """
    return f"{path}.".startswith(f"{name}.")


def from_leaves(leaves: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The nested dict with these (path, array) pairs, the inverse of ``leaves``.

    >>> from_leaves([("a.weight", 1), ("a.bias", 2), ("b", 3)])
    {'a': {'weight': 1, 'bias': 2}, 'b': 3}
    >>> from_leaves([("a", 1), ("a.b", 2)])
    Traceback (most recent call last):
    npformer.UserError: the path 'a.b' leads through a leaf or ends at one that is there, \
expected other names
    """
    tree: dict = {}
    for path, x in _pairs(leaves):
        *parents, name = path.split(".", DEEPEST)
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {}) if isinstance(branch, dict) else branch
        if not isinstance(branch, dict) or name in branch:
            problem = f"the path {path!r:.60} leads through a leaf or ends at one that is there"
            raise UserError(f"{problem}, expected other names")
        branch[name] = x
    return tree


def _pairs(leaves):
    """Yield the pairs that ``from_leaves`` takes, or raise if these are none."""
    pair = "expected pairs such as ('output.bias', array)"
    if not isinstance(leaves, Iterable) or isinstance(leaves, dict):
        advice = ": try leaves.items()" if isinstance(leaves, dict) else ""
        raise TypeError(f"leaves is {described(leaves)}, {pair}{advice}")
    for leaf in leaves:
        if not isinstance(leaf, (tuple, list)) or len(leaf) != 2 or not isinstance(leaf[0], str):
            raise TypeError(f"leaves has {leaf!r:.60}, {pair}")
        yield leaf


def to_arrays(tree: Any, prefix: str) -> dict[str, Any]:
    """A flat dict of the arrays of a tree, with ``prefix.path`` as keys, as in a checkpoint.

    >>> to_arrays({"a": {"weight": 1}}, "params")
    {'params.a.weight': 1}
    """
    return dict(leaves(tree, prefix))


def from_arrays(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The inverse of ``to_arrays``; the dict may hold other arrays too.

    >>> from_arrays({"params.a.weight": 1, "optimizer.m": 2}, "params")
    {'a': {'weight': 1}}
    """
    return from_leaves(leaves_under(arrays, prefix).items())


def leaves_under(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The dict of path to array of the names that begin with the prefix.

    >>> leaves_under({"params.a.weight": 1, "optimizer.m": 2}, "params")
    {'a.weight': 1}
    """
    _check_dict("arrays", arrays)
    start = f"{prefix}."
    return {path.removeprefix(start): x for path, x in arrays.items() if path.startswith(start)}


def map_leaves(f: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply ``f`` to the arrays with the same path in each tree, and return the tree of the
    results.

    >>> map_leaves(lambda x, y: x + y, {"a": {"b": 1}}, {"a": {"b": 10}})
    {'a': {'b': 11}}
    >>> map_leaves(np.add, {"a": {"b": np.zeros(3)}}, {"a": {}})
    Traceback (most recent call last):
    npformer.UserError: trees differ at a.b: float64 of shape (3,) against nothing
    """
    if not callable(f):
        raise TypeError(f"f is {described(f)}, expected a function of arrays")
    try:
        return _mapped(f, tree, *others)
    except _TreesDiffer:
        raise UserError(f"trees differ {_difference([tree, *others])}") from None


class _TreesDiffer(Exception):
    """Is raised where it is found; where that is, is looked for afterwards, so that no call pays
    for it.
    """


def _mapped(f, tree, *others):
    if not isinstance(tree, dict):
        return f(tree, *others)
    for other in others:
        if not isinstance(other, dict) or other.keys() != tree.keys():
            raise _TreesDiffer
    mapped = {}
    for name, child in tree.items():
        mapped[name] = _mapped(f, child, *[other[name] for other in others])
    return mapped


def _difference(trees, parents=()):
    """Where trees first differ in their names, and what each has there; None if they do not."""
    if not all(isinstance(tree, dict) for tree in trees):
        if not any(isinstance(tree, dict) or tree is NOTHING for tree in trees):
            return None
        return f"at {_path(parents) or 'their roots'}: {' against '.join(map(described, trees))}"
    names = dict.fromkeys(name for tree in trees for name in tree)
    for name in names:
        difference = _difference([tree.get(name, NOTHING) for tree in trees], (*parents, name))
        if difference:
            return difference
    return None


def ordered_like(tree: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """The same tree, with the keys of each dict in the order of another tree that has the same
    paths.

    Dicts without arrays, which a file does not hold, are those of the other tree.

    >>> ordered_like({"b": 1, "a": 2}, {"a": 0, "b": 0})
    {'a': 2, 'b': 1}
    """
    _check_dict("tree", tree)
    _check_dict("like", like)
    return _ordered(tree, like)


def _ordered(tree, like):
    return {
        name: _ordered(tree.get(name, {}), child) if isinstance(child, dict) else tree[name]
        for name, child in like.items()
    }


def flatten(tree: Any) -> tuple[Array, Any]:
    """Copy all arrays into one contiguous buffer.

    Returns
    -------
    flat : (n,)
    views : nested dict
        The same tree, with arrays that are views into ``flat``: writing to one writes to the other.

    Examples
    --------
    >>> flat, views = flatten({"a": np.zeros((1, 2)), "b": np.ones(1)})
    >>> flat[0] = 7
    >>> views["a"]
    array([[7., 0.]])
    """
    arrays = _arrays(tree)
    if not arrays:
        raise UserError("the tree has no arrays, expected one or more")
    flat = np.concatenate([x.ravel() for _, x in arrays])
    return flat, view_as(flat, tree)


def view_as(flat: Array, tree: Any) -> Any:
    """View a flat buffer as a tree with the paths and shapes of ``tree``, without a copy; the
    inverse of ``flatten``.

    >>> view_as(np.arange(3.0), {"a": np.zeros((1, 2)), "b": np.zeros(1)})
    {'a': array([[0., 1.]]), 'b': array([2.])}
    """
    if not hasattr(flat, "shape"):
        raise TypeError(f"flat is {described(flat)}, expected an array")
    if flat.size != count(tree):
        raise UserError(f"the buffer has {flat.size} numbers, the tree {count(tree)}")
    start = 0

    def take(like):
        nonlocal start
        part = flat[start : start + like.size].reshape(like.shape)
        start += like.size
        return part

    return map_leaves(take, tree)


def count(tree: Any) -> int:
    """Number of array entries in a tree.

    >>> count({"a": np.zeros((2, 3)), "b": np.zeros(4)})
    10
    """
    return sum(math.prod(x.shape) for _, x in _arrays(tree))


def not_finite(tree: Any) -> list[str]:
    """The paths of the arrays that hold NaN or inf.

    >>> not_finite({"a": {"weight": np.array([1.0, np.nan]), "bias": np.zeros(2)}})
    ['a.weight']
    """
    return [path for path, x in _arrays(tree) if not np.isfinite(x).all()]


def _arrays(tree):
    """The ``leaves`` of a tree, each of which has to be an array."""
    pairs = leaves(tree)
    for path, x in pairs:
        check_leaf(path, x)
    return pairs


def check_leaf(path: str, x: Any) -> None:
    """Raise an error if what a tree has at a path is no array."""
    if not hasattr(x, "shape"):
        raise TypeError(f"the tree has {described(x)} at {path or 'its root'}, expected an array")


def _check_dict(name, value):
    if not isinstance(value, dict):
        raise TypeError(f"{name} is {described(value)}, expected a nested dict of arrays")


class Fixed(dict):
    """A dict that always has the same arrays: they can be written into, but not replaced, added or
    deleted.

    A copy is an ordinary dict.

    >>> params = fixed({"output": {"bias": np.zeros(2)}})
    >>> params["output"]["bias"] += 1
    >>> params["output"]["bias"] = np.ones(2)
    Traceback (most recent call last):
    npformer.UserError: parameter 'bias' cannot be replaced, added or deleted: \
write into the array, as params['bias'][...] = x
    """

    def __init__(self, tree):
        super().__init__(tree)
        # Noted once, as the arrays stay and these are asked for in each step.
        self.shapes = {name: shapes_of(child) for name, child in tree.items()}
        self.types = {type(leaf) for _, leaf in leaves(tree)}

    def __setitem__(self, name, value):
        if self.get(name) is not value:  # params[name] += 1 ends with one of the same array
            self._refuse(name)

    def _refuse(self, *names, **more):
        name = repr(next((name for name in [*names, *more] if isinstance(name, str)), "name"))
        advice = f"write into the array, as params[{name}][...] = x"
        raise UserError(f"parameter {name} cannot be replaced, added or deleted: {advice}")

    __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self):
        return dict, (dict(self),)


def fixed(tree: Any) -> Any:
    """The same tree of ``Fixed`` dicts."""
    if not isinstance(tree, dict):
        return tree
    return Fixed({name: fixed(child) for name, child in tree.items()})


def shapes_of(tree: Any) -> Any:
    """The shapes of the arrays of a tree, None of what is no array. A ``Fixed`` one knows them.

    >>> shapes_of({"output": {"bias": np.zeros(2)}})
    {'output': {'bias': (2,)}}
    """
    if isinstance(tree, Fixed):
        return tree.shapes
    return map_leaves(lambda x: getattr(x, "shape", None), tree)


def merged(
    tree: dict[str, Any],
    new: dict[str, Any],
) -> tuple[dict[str, Any], list[str], list[str]]:
    """A tree like ``new``, with the arrays of ``tree`` where path, shape and dtype are the same.

    With it, training can start from the parameters of a model with another vocabulary, another
    number of layers or another output layer.

    Parameters
    ----------
    tree, new : nested dicts of arrays
        Trained parameters, and the initial ones of the new model, ``model.init(seed)``.

    Returns
    -------
    merged : nested dict of arrays
    taken, left : lists of str
        The paths of ``new`` whose arrays were taken from ``tree``, and the other paths of ``new``.

    Examples
    --------
    >>> trained = {"body": {"weight": np.ones((2, 2))}, "output": {"bias": np.ones(3)}}
    >>> new = {"body": {"weight": np.zeros((2, 2))}, "output": {"bias": np.zeros(5)}}
    >>> params, taken, left = merged(trained, new)
    >>> taken, left
    (['body.weight'], ['output.bias'])
    """
    _check_dict("tree", tree)
    _check_dict("new", new)
    old = dict(leaves(tree))
    arrays = {}
    reused = []
    left = []
    for path, x in leaves(new):
        y = old.get(path)
        if y is not None and (y.shape, y.dtype) == (x.shape, x.dtype):
            arrays[path] = y
            reused.append(path)
        else:
            arrays[path] = x
            left.append(path)
    return from_leaves(arrays.items()), reused, left


def check_like(
    tree: Any,
    expected: dict[str, Any],
    *,
    dtypes: bool = True,
    what: str = "parameter",
) -> None:
    """Check that two trees have the same paths, shapes and (unless told otherwise) dtypes.

    The error calls an array ``what``.

    Raises
    ------
    UserError
        With the first difference.
    TypeError
        If ``tree`` is not a dict.
    """
    if not isinstance(tree, dict):
        problem = f"params is a {type(tree).__name__}"
        raise TypeError(f"{problem}, expected a nested dict such as model.init(seed)")
    _check_dict("expected", expected)
    if not dtypes and shapes_of(tree) == shapes_of(expected):
        return  # the usual case, which a loop by hand asks for in each step
    arrays = dict(_named_arrays(tree))
    expected_arrays = dict(_named_arrays(expected))
    for names in [*expected_arrays, *arrays]:
        x = arrays.get(names, NOTHING)
        like = expected_arrays.get(names, NOTHING)
        actual = described(x, dtypes)
        if actual == described(like, dtypes):
            continue
        problem = f"given {actual}, expected {described(like, dtypes)}"
        shape = getattr(x, "shape", ())
        expected_shape = getattr(like, "shape", ())
        if len(shape) == 2 and shape == expected_shape[::-1] != expected_shape:
            problem += ": try its .T"
        raise UserError(f"{what} {_path(names)}: {problem}")


def _named_arrays(tree, parents=()):
    """The (names, array) pairs of a nested dict. (Joined, 0 would be like "0", and a name "a.b"
    like two names.)
    """
    if not isinstance(tree, dict):
        return [(parents, tree)]
    return [pair for name, child in tree.items() for pair in _named_arrays(child, (*parents, name))]


def _path(names):
    """The names from the root to an array, as a path to read: not as one to look it up by."""
    path = ".".join(name if isinstance(name, str) else repr(name) for name in names)
    return path if path.isprintable() else ascii(path)


def described(x: Any, dtypes: bool = True) -> str:
    """What something in the place of an array is, for an error."""
    if x is NOTHING:
        return "nothing"
    if not hasattr(x, "shape") or has_own_rules(type(x)):
        return f"a {type(x).__name__}"
    return f"{x.dtype} of shape {x.shape}" if dtypes else f"shape {x.shape}"
