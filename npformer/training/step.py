"""One training step: the loss and its gradient, the gradient's norm, clipping, and the update.

``WholeBatch`` computes a batch with the model's ``loss_and_grad``. What divides a step takes the
place of one of its parts: ``OverShards`` and ``OverRanks`` that of ``WholeBatch``,
``DividedOptimizer`` that of the optimizer. What computes in a shorter number format wraps the
model's ``loss_and_grad``, and the step (``precision.py``). ``Trainer`` puts them together.
"""

from typing import Any, NamedTuple

import numpy as np

from npformer import tree
from npformer.models.loss_and_grad import GivenGradients
from npformer.reference import derive_key
from npformer.training.guard import are_usable


class Numbers(NamedTuple):
    """The numbers that differ from step to step. A recorded step reads them from the device."""

    n_targets: Any  # targets that are not padding, in all batches of the step
    loss_scale: Any  # the loss is multiplied by it before the backward pass; 1 except for float16
    lr: Any
    step: Any  # 1 is the first


def training_step(
    state,
    batches,
    key,
    numbers,
    *,
    loss_and_grad,
    optimizer,
    options,
    clip_norm,
    has_loss_scale,
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
    loss_and_grad : WholeBatch, OverShards or OverRanks
        It computes a batch, writes its gradients into ``state.flat_grads``, and returns its loss.
        The gradients of the first batch of a step overwrite what is there, those of the others are
        added to it. Ranks (processes) exchange gradients and losses with the last batch.
    optimizer : FlatOptimizer
    options : dict
        Further options of the model's ``loss_and_grad``, such as the backend.
    clip_norm : float or None
    has_loss_scale : bool
        Whether the model multiplies the loss by a scale, as it does in float16.

    Returns
    -------
    loss, norm
        The mean loss per target, and the norm of its gradient before clipping.
    is_update
        Whether both are usable numbers. If not, the step has changed no parameter.
    """
    n_targets, loss_scale, lr, step = numbers
    # The loss and the gradients of each batch are divided by the targets of all batches, which a
    # model calls tokens.
    options = options | {"n_tokens": n_targets}
    if has_loss_scale:
        options["loss_scale"] = loss_scale
    loss = np.float64(0)
    for i, batch in enumerate(batches):
        is_first = i == 0
        is_last = i + 1 == len(batches)
        batch_key = derive_key(key, i)
        loss = loss + loss_and_grad(batch, batch_key, options, is_first=is_first, is_last=is_last)
    optimizer.clear_frozen(state.flat_grads)
    norm = optimizer.norm(state.flat_grads) / loss_scale
    clipping = 1.0 if clip_norm is None else clip_norm / np.maximum(norm, clip_norm)
    is_update = are_usable(loss, norm, clip_norm, state.flat_params.dtype)
    # If it is False, the factor is NaN, with which reference/math/update.py changes nothing.
    grad_scale = np.where(is_update, clipping / loss_scale, np.nan)
    optimizer.update(state, step=step, grad_scale=grad_scale, lr=lr)
    return loss, norm, is_update


class WholeBatch:
    """The loss and the gradients of a batch, for a training that does not divide it.

    The gradients of several batches are added up. So the result is that of one batch with the rows
    of all, whose activations need not be in memory at once.
    """

    def __init__(self, loss_and_grad, state):
        self.loss_and_grad, self.params = loss_and_grad, state.params
        self.sum_of = dict(tree.leaves(state.grads))  # of the gradients of a step, by path

    def __call__(self, batch, dropout_key, options, *, is_first, is_last):
        """Compute a batch, and return its loss."""

        def take(path, grad):
            total = self.sum_of[path]
            if is_first:
                total[...] = grad
            else:
                total += grad

        given = GivenGradients(self.sum_of, take)
        results = self.loss_and_grad(
            self.params, *batch, dropout_key=dropout_key, ready=given.ready, **options
        )
        return given.loss_of(results)
