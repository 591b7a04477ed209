"""The gradients of a model, which its backward pass computes from the last layer to the first."""

from typing import Any

import numpy as np

from npformer import tree
from npformer.errors import UserError
from npformer.quantized import check_trainable

# What ``loss_and_grad`` returns: None with ``ready``, or without ``with_grad``. It is not ``dict |
# None``: a loop by hand, which uses neither, would have to tell mypy that it is a dict.
MaybeGrads = dict | Any


class Gradients:
    """What each part of a backward pass gives its gradients to.

    They are passed on to ``ready(path, grads)`` as soon as those below a path are complete; without
    ``ready`` they are collected. ``n_uses`` says by path how often parameters are used, if more
    than once, as those of shared layers: the gradient is the sum over the uses, and complete after
    the last of them.

    Examples
    --------
    >>> gradients = Gradients({"a": np.ones(2), "b": {"c": np.ones(1)}}, n_uses={"b": 2})
    >>> gradients.give("b", {"c": np.array([1.0])})
    >>> gradients.give("a", np.array([3.0, 4.0]))
    >>> gradients.give("b", {"c": np.array([5.0])})
    >>> gradients.all()
    {'a': array([3., 4.]), 'b': {'c': array([6.])}}

    What is below a path may be given in several parts, in any order:

    >>> gradients = Gradients({"a": {"norm": np.ones(1), "0": np.ones(1)}})
    >>> gradients.give("a.0", np.array([1.0]))
    >>> gradients.give("a", {"norm": np.array([2.0])})
    >>> gradients.all()
    {'a': {'norm': array([2.]), '0': array([1.])}}

    A use that is missing is an error:

    >>> gradients = Gradients({"b": np.ones(1)}, n_uses={"b": 2})
    >>> gradients.give("b", np.array([1.0]))
    >>> gradients.all()
    Traceback (most recent call last):
    npformer.UserError: the gradients of b are not complete: 1 more expected
    """

    def __init__(self, params, ready=None, n_uses=None):
        check_trainable(params)
        self.params = params
        self.ready = ready
        self.n_missing = dict(n_uses or {})
        self.sums: dict = {}  # of the uses so far
        self.last: list = []
        self.collected: dict = {}  # arrays by their paths

    def give(self, path, grads):
        """Take the gradients of what is below a path, or of an array, at one of their uses."""
        if path in self.sums:
            grads = tree.map_leaves(_add_to, self.sums.pop(path), grads)
        self.n_missing[path] = self.n_missing.get(path, 1) - 1
        if self.n_missing[path] > 0:
            self.sums[path] = grads
        elif self.ready is None:
            self.collected.update(tree.leaves(grads, path))
        elif isinstance(grads, dict):
            self.ready(path, grads)
        else:
            self.ready("", {path: grads})

    def give_last(self, path, grads):
        """Take gradients that are added last, those of the output where its weight is a table, too.

        They are computed first. But the rounding of a sum depends on the order, which is that of
        the uses in the forward pass; and so the sum is made in the array of the table's gradient,
        not in theirs, which is transposed.
        """
        self.last.append((path, grads))

    def all(self):
        """All gradients, like the parameters; None if they were passed on."""
        for path, grads in self.last:
            self.give(path, grads)
        if self.sums:
            path = next(iter(self.sums))
            raise UserError(
                f"the gradients of {path} are not complete: {self.n_missing[path]} more expected"
            )
        if self.ready is not None:
            return None
        return tree.ordered_like(tree.from_leaves(self.collected.items()), self.params)


def _add_to(total, grad):
    """The sum, in the memory of ``total``.

    A new array would take three times as long for a table that is the output's weight, too: its
    gradient is transposed.
    """
    return np.add(total, grad, out=total)
