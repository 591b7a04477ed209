"""The two ends of a model's ``loss_and_grad``: the options it takes, and what it has to give back.

The models of npformer and those that people write are called in the same way.
"""

import inspect
from typing import NamedTuple

from npformer import tree
from npformer.errors import UserError


class TakenByLoss(NamedTuple):
    """What the ``loss_and_grad`` of a model takes beside its parameters and a batch."""

    names: frozenset[str]
    takes_others: bool  # as ``**options``, which it may hand on or ignore
    needs_n_tokens: bool  # whether it cannot count the targets itself


def taken_by_loss(model) -> TakenByLoss:
    """The ``TakenByLoss`` of a model."""
    parameters = inspect.signature(model.loss_and_grad).parameters
    takes_others = any(each.kind == each.VAR_KEYWORD for each in parameters.values())
    n_tokens = parameters.get("n_tokens")
    needs_n_tokens = n_tokens is not None and n_tokens.default is n_tokens.empty
    return TakenByLoss(frozenset(parameters), takes_others, needs_n_tokens)


def checked_results(results):
    """(loss, gradients, number of targets), as a model's ``loss_and_grad`` has to return them."""
    expected = "(loss, gradients, number of targets)"
    if not isinstance(results, (tuple, list)):
        kind = type(results).__name__
        raise UserError(f"loss_and_grad returned a {kind}, expected {expected}")
    if len(results) != 3:
        raise UserError(f"loss_and_grad returned {len(results)} values, expected {expected}")
    shape = getattr(results[0], "shape", ())
    if shape != ():
        raise UserError(f"loss_and_grad returned a loss of shape {shape}, expected a number")
    return results


class GivenGradients:
    """The gradients that a model gives in one call of its ``loss_and_grad``.

    ``take(path, grad)`` gets each, which nobody changes then. Each is given once, in the shape of
    its parameter, ``like[path].shape``; if not, the error names it.
    """

    def __init__(self, like, take):
        self.like, self.take = like, take
        self.missing = dict.fromkeys(like)

    def ready(self, path, grads):
        """Take the gradients of the parameters below a path: what a model calls ``ready``."""
        for leaf, grad in tree.leaves(grads, path):
            expected = self.like[leaf].shape if leaf in self.like else "nothing"
            if getattr(grad, "shape", None) != expected:  # otherwise it would be broadcast
                what = tree.described(grad, dtypes=False)
                raise UserError(f"the gradient of {leaf}: given {what}, expected {expected}")
            if leaf not in self.missing:
                raise UserError(f"the gradient of {leaf}: given twice, expected once")
            del self.missing[leaf]
            self.take(leaf, grad)

    def loss_of(self, results):
        """Take the gradients that a model has returned, and return its loss.

        A model may give an array to ``ready`` and return it, too; it is taken once.
        """
        loss, grads, _ = checked_results(results)
        for leaf, grad in tree.leaves({} if grads is None else grads):
            is_unknown = leaf not in self.like  # which ``ready`` refuses
            if leaf in self.missing or is_unknown:
                self.ready(leaf, grad)
        if self.missing:
            leaf = next(iter(self.missing))
            expected = f"shape {self.like[leaf].shape}"
            raise UserError(f"the gradient of {leaf}: given nothing, expected {expected}")
        return loss


def without_ready(loss_and_grad):
    """A ``loss_and_grad`` that is given ``ready``, of a model which returns all its gradients."""

    def call(*args, ready, **options):
        return loss_and_grad(*args, **options)

    return call
