"""One training step: the loss and its gradient, the gradient's norm, clipping, and the update.

``WholeBatch`` computes a batch with the model's ``loss_and_grad``. What divides a batch takes its
place, ``OverShards`` or ``OverRanks``: each of the three is a ``LossAndGrad``. A shorter number
format wraps the ``loss_and_grad``, and the step, which it tries again after an overflow
(``precision.py``). What divides the moments of the optimizer among ranks takes the place of the
optimizer. All that a step knows of them is whether the number format has a loss scale, which is an
option of the model's ``loss_and_grad``.
"""

import inspect
from typing import Any, NamedTuple

import numpy as np

from npformer import tree
from npformer.errors import UserError
from npformer.models.batch import checked_results
from npformer.reference import derive_key
from npformer.training.guard import are_usable


class Numbers(NamedTuple):
    """The numbers that differ from step to step. A recorded step reads them from the device."""

    n_targets: Any  # targets that are not padding, in all batches of the step
    loss_scale: Any  # the loss is multiplied by it before the backward pass; 1 except for float16
    lr: Any
    step: Any  # 1 is the first


class LossAndGrad:
    """The base class of what computes the batches of a step."""

    def __call__(self, params, batch, dropout_key, options, *, is_first, is_last) -> Any:
        """Compute a batch, and write its gradients into ``state.flat_grads``.

        Those of the first batch of a step overwrite what is there, those of the others are added
        to it. Ranks exchange the sum with the last batch. What is returned, the loss of the batch
        if there are no ranks, is for ``total``.
        """
        raise NotImplementedError

    def total(self, losses):
        """Return the loss of a step, of what was returned for each of its batches."""
        return sum_of_losses(losses)


def training_step(
    state, batches, key, numbers, *, ops, loss_and_grad, optimizer, options, clip_norm
):
    """Compute loss and gradient, norm and clipping, and update the parameters.

    No Python branch depends on the value of an array, so a GPU can record the step.

    Parameters
    ----------
    state : TrainState
    batches : list of tuples
        One batch, or several whose gradients are added up.
    key
        The dropout key.
    numbers : Numbers, or an array of the device with them
    ops : Ops
    loss_and_grad : LossAndGrad
    optimizer : FlatOptimizer
    options : dict
        Further options of the model's ``loss_and_grad``.
    clip_norm : float or None

    Returns
    -------
    loss, norm
        The mean loss per target, and the norm of its gradient before clipping.
    is_update
        Whether both are usable numbers. If not, the step has changed no parameter.
    """
    n_targets, loss_scale, lr, step = numbers
    options = options | {"n_tokens": n_targets, "backend": ops}
    if state.precision.has_loss_scale:  # others are not asked to take this option
        options["loss_scale"] = loss_scale
    params = state.params
    parts = []  # of the loss
    for i, batch in enumerate(batches):
        is_first = i == 0
        is_last = i + 1 == len(batches)
        batch_key = derive_key(key, i)
        # The gradients of the first batch overwrite those of the last step in state.flat_grads, the
        # others are added to them. All are divided by the targets of all batches.
        part = loss_and_grad(params, batch, batch_key, options, is_first=is_first, is_last=is_last)
        parts.append(part)
    loss = loss_and_grad.total(parts)
    optimizer.clear_frozen(state.flat_grads)
    norm = optimizer.norm(state.flat_grads) / loss_scale
    clipping = 1.0 if clip_norm is None else clip_norm / np.maximum(norm, clip_norm)
    is_update = are_usable(loss, norm, clip_norm, state.flat_params.dtype)
    # With NaN, reference/math/update.py changes nothing.
    grad_scale = np.where(is_update, clipping / loss_scale, np.nan)
    optimizer.update(state, step=step, grad_scale=grad_scale, lr=lr)
    return loss, norm, is_update


def sum_of_losses(losses):
    """The sum of losses, each of which was divided by the number of targets of all batches."""
    return sum(losses, np.float64(0))


class WholeBatch(LossAndGrad):
    """The loss and the gradients of a batch, for a training that does not divide it.

    The gradients of the first batch of a step are written into ``state.flat_grads``, those of the
    others are added to them. So the result is that of one batch with the rows of all, whose
    activations need not be in memory at once. Each gradient is taken once, in the shape of its
    parameter. A model that knows ``ready`` gives each as soon as it is there, so that nobody keeps
    a whole one.
    """

    def __init__(self, loss_and_grad, state):
        self.loss_and_grad = loss_and_grad
        self.sum_of = dict(tree.leaves(state.grads))  # of the gradients of a step, by path
        self.knows_ready = "ready" in inspect.signature(loss_and_grad).parameters

    def __call__(
        self, params, batch, dropout_key, options, *, is_first=True, is_last=True, take=None
    ):
        """Compute a batch, and return its loss.

        If ``take`` is given, ``take(path, grad)`` gets each gradient, which nobody changes from
        then on, and ``state.flat_grads`` none.
        """
        take = take or (self.write if is_first else self.add)
        missing = dict.fromkeys(self.sum_of)

        def ready(path, grads):
            for leaf, grad in tree.leaves(grads, path):
                expected = self.sum_of[leaf].shape if leaf in self.sum_of else "nothing"
                if getattr(grad, "shape", None) != expected:  # otherwise it would be broadcast
                    what = tree.described(grad, dtypes=False)
                    raise UserError(f"the gradient of {leaf}: given {what}, expected {expected}")
                if leaf not in missing:
                    raise UserError(f"the gradient of {leaf}: given twice, expected once")
                del missing[leaf]
                take(leaf, grad)

        if self.knows_ready:
            options = options | {"ready": ready}
        results = self.loss_and_grad(params, *batch, dropout_key=dropout_key, **options)
        loss, grads, _ = checked_results(results)
        for leaf, grad in tree.leaves({} if grads is None else grads):
            if leaf in missing or leaf not in self.sum_of:  # which ``ready`` refuses
                ready(leaf, grad)
        if missing:
            leaf = next(iter(missing))
            expected = f"shape {self.sum_of[leaf].shape}"
            raise UserError(f"the gradient of {leaf}: given nothing, expected {expected}")
        return loss

    def write(self, path, grad):
        """Write a gradient of the first batch."""
        self.sum_of[path][...] = grad

    def add(self, path, grad):
        """Add a gradient to those of the batches before."""
        total = self.sum_of[path]
        total += grad
