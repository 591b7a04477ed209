"""What a training asks of a model: what its loss takes, its batches, and its answers, checked."""

import inspect
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.checks import check_int
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


def names_of_batch(model):
    """The names of the arrays of a batch."""
    return list(inspect.signature(model.count).parameters)


def check_batches(batches, name="batches"):
    """Check that there are batches, which can be read twice: to count targets, and to compute."""
    if not batches:
        raise UserError(f"{name} is empty, expected one or more tuples such as (src, tgt)")
    for n, batch in enumerate(batches):
        if not isinstance(batch, (tuple, list)):
            expected = "a tuple such as (src, tgt), or (ids,)"
            raise UserError(f"{name}[{n}] is a {type(batch).__name__}, expected {expected}")
        for i, x in enumerate(batch):
            if isinstance(x, Iterator):
                kind = f"a {type(x).__name__}, which can be read only once"
                raise TypeError(f"batch[{i}] is {kind}: expected an array")


def count_of(model, batch):
    """The number of targets of a batch."""
    kind = type(model).__name__
    try:
        n = model.count(*batch)
    except TypeError as error:
        arguments = inspect.signature(model.count)
        try:
            arguments.bind(*batch)
        except TypeError:
            names = ", ".join(arguments.parameters)
            items = "1 item" if len(batch) == 1 else f"{len(batch)} items"
            message = f"a batch has {items}, expected those that {kind} takes: ({names})"
            if len(batch) == 1 and isinstance(batch[0], (tuple, list)):
                message += ": unpack the tuple, as in step(*batch)"
            raise TypeError(message) from error
        raise
    return check_int(f"{kind}.count(…)", n, at_least=0)


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


def filled_up(model, ids, rounded_up, n_more=0):
    """Ids (B, T + n_more) with more rows and columns, so that B and T are of a small set.

    They stay as they are if no id is the model's padding.
    """
    if model.pad_id is None:
        return ids
    n_rows = rounded_up(len(ids)) - len(ids)
    T = ids.shape[1] - n_more
    n_columns = min(rounded_up(T), model.max_len) - T
    missing = (0, n_rows), (0, n_columns)
    return np.pad(ids.astype(np.int64, copy=False), missing, constant_values=model.pad_id)
