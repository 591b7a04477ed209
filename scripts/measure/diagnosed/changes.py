"""How a mistake is planted: functions that change a case, and decorators for those that say what
becomes of a part of it.
"""

import inspect
from typing import NamedTuple

import numpy as np

import npformer as nf
from npformer import tree


class Planted(NamedTuple):
    """A mistake: the names that are right, a function that returns the arguments of ``diagnose``
    that have it, and the function that was decorated.
    """

    title: str
    names: set
    make: object
    change: object


MISTAKES: list = []
TESTED: list = []  # those of them that are tests, too


def mistake(*names):
    """Add the decorated function, which makes a case; its name is the title."""
    return planting(names, lambda make: make())


def in_batch(case, *names):
    """Add a mistake in the batch of ``case()``: the decorated function changes the batch."""
    return planting(names, lambda change: with_batch(case(), change))


def in_params(case, path, *names):
    """Add a mistake in the parameters whose path ends so: the function changes an array."""
    return planting(names, lambda change: with_params(case(), path, change))


def in_operation(case, name, *names):
    """Add a mistake in an operation: the function is called with it and its arguments; or with one
    argument, "operation(argument)", which it changes.
    """
    return planting(names, lambda f: with_ops(case(), **in_place_of(name, f)))


def in_method(case, name, *names, **settings):
    """Add a mistake in a method of a model, "Class.method" or "Class.method(argument)"."""
    kind, _, method = name.partition(".")

    def make(f):
        changed_kind = variant(getattr(nf, kind), **in_place_of(method, f))
        return case(changed_kind, **settings)

    return planting(names, make)


def in_decoder(case, kind, decoder, name, *names, **settings):
    """Add a mistake in a method of the decoder of a class of models."""

    def make(f):
        changed_kind = with_decoder(kind, decoder, **in_place_of(name, f))
        return case(changed_kind, **settings)

    return planting(names, make)


def in_gradient(case, kind, path, *names):
    """Add a mistake in the gradients by some parameters: the function changes a gradient."""
    return planting(names, lambda change: case(with_gradient(kind, path, change)))


def tested(change):
    """Make a test of the mistake of a function, above the decorator that adds it: it is one of
    `make test`, too.
    """
    added = [planted for planted in MISTAKES if planted.change is change]
    if not added:
        raise ValueError(f"{change.__name__} is no mistake yet, put @tested above its decorator")
    TESTED.extend(added)
    return change


def planting(names, make):
    def add(change):
        title = change.__name__.replace("_", " ")
        MISTAKES.append(Planted(title, set(names), lambda: make(change), change))
        return change

    return add


def with_batch(case, change):
    """The same with the batch ``change(*batch)``."""
    batch = map(np.ascontiguousarray, change(*case["batch"]))
    return case | {"batch": tuple(batch)}


def changed(tree_of, path, change):
    """A copy of parameters, or of a gradient, with those arrays changed whose path ends so."""
    leaves = dict(tree.leaves(tree_of))
    for name, x in leaves.items():
        if name.endswith(path):
            leaves[name] = change(x.copy())
    return tree.from_leaves(leaves.items())


def with_params(case, path, change):
    """The same with some parameters changed."""
    return case | {"params": changed(case["params"], path, change)}


def around(inherited, change):
    """The function that calls ``change(inherited, …)``."""
    return lambda *args, **options: change(inherited, *args, **options)


def in_place_of(name, change):
    """{name: what is called in its place}, of "name" or "name(argument)"."""
    name, _, argument = name.rstrip(")").partition("(")
    return {name: with_arguments(**{argument: change}) if argument else change}


def with_arguments(**changes):
    """A change of a function: it is called with some of its arguments changed."""

    def call(inherited, *args, **options):
        bound = inspect.signature(inherited).bind(*args, **options)
        bound.apply_defaults()
        for name, change in changes.items():
            bound.arguments[name] = change(bound.arguments[name])
        return inherited(*bound.args, **bound.kwargs)

    return call


def nothing(_):
    """In place of an argument."""


def with_ops(case, **changes):
    """The same on a backend some of whose operations are changed, as in ``around``."""
    ops = nf.get_backend("auto")
    operations = {name: around(getattr(ops, name), f) for name, f in changes.items()}
    return case | {"backend": ops.replaced(**operations)}


def variant(base, **members):
    """A subclass with other members; functions are changed, as in ``around``."""
    for name, member in members.items():
        if callable(member):
            members[name] = around(getattr(base, name), member)
    return type(base.__name__, (base,), members)


def with_gradient(base, path, change):
    """A class of models whose gradients by some parameters are changed."""

    def loss_and_grad(compute, *args, **options):
        loss, grads, n = compute(*args, **options)
        return loss, grads and changed(grads, path, change), n

    return variant(base, loss_and_grad=loss_and_grad)


def with_decoder(base, decoder, **changes):
    """A class of models that decode with a variant of a decoder."""

    def make(inherited, *args, **options):
        made = inherited(*args, **options)
        made.__class__ = variant(decoder, **changes)
        return made

    return variant(base, decoder=make)
