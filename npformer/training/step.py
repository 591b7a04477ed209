"""One training step: the loss and its gradient, the gradient's norm, clipping, and the update.

``OverBatches`` wraps the model's ``loss_and_grad``. What divides the work of a step takes its
place: ``OverShards`` and ``OverRanks``. A shorter number format wraps it, too, and the step, which
it tries again after an overflow (``precision.py``). What divides the moments of the optimizer among
ranks wraps the optimizer. A step knows nothing of them.
"""

import inspect
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from npformer.reference import derive_key
from npformer.training.flat import GivenGradients


class Numbers(NamedTuple):
    """The numbers that differ from step to step. A recorded step reads them from the device."""

    n_targets: Any  # targets that are not padding, in all batches of the step
    loss_scale: Any  # the loss is multiplied by it before the backward pass; 1 but for float16
    lr: Any
    step: Any  # 1 is the first


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
    loss_and_grad : callable
        That of a model, which ``OverBatches`` makes one of batches.
    optimizer : FlatOptimizer
    options : dict
        Further options of ``loss_and_grad``.
    clip_norm : float or None

    Returns
    -------
    loss, norm
        The mean loss per target, and the norm of its gradient before clipping.
    is_update
        Whether both are usable numbers. If not, the step has changed no parameter.
    """
    n_targets, loss_scale, lr, step = numbers
    options = options | {"dropout_key": key, "n_tokens": n_targets, "backend": ops}
    if state.precision.has_loss_scale:  # others are not asked to take this option
        options["loss_scale"] = loss_scale
    # It writes the gradients into state.flat_grads, which its wrapper knows.
    loss, _, _ = loss_and_grad(state.params, *batches, **options)
    optimizer.clear_frozen(state.flat_grads)
    norm = optimizer.norm(state.flat_grads) / loss_scale
    clipping = 1.0 if clip_norm is None else clip_norm / np.maximum(norm, clip_norm)
    is_update = are_usable(loss, norm, clip_norm, state.flat_params.dtype)
    # With NaN, reference/math/update.py changes nothing.
    grad_scale = np.where(is_update, clipping / loss_scale, np.nan)
    optimizer.update(state, step=step, grad_scale=grad_scale, lr=lr)
    return loss, norm, is_update


def are_usable(loss, norm, clip_norm, dtype):
    """Whether the loss is finite, and so are the squares of the clipped gradient.

    Adam keeps the mean of these squares. ``dtype`` is that of the parameters. Those of half
    precision are updated in float32.
    """
    clipped = norm if clip_norm is None else np.minimum(norm, clip_norm)
    largest = np.sqrt(np.finfo(np.promote_types(dtype, np.float32)).max)
    return np.isfinite(loss) & np.isfinite(norm) & (clipped < largest)


class OverBatches:
    """A ``loss_and_grad`` of the batches of a step, for a training that divides none of them.

    The result is that of one batch with all their rows, whose activations need not be in memory at
    once. Each batch has a dropout key that is derived from that of the step. The gradients are
    added up in ``state.flat_grads``; those that are returned, ``state.grads``, are views into it.
    If the model's ``loss_and_grad`` takes ``ready``, it gives each gradient as soon as it is there,
    so that nobody keeps a whole one.
    """

    def __init__(self, loss_and_grad, state):
        self.loss_and_grad, self.state = loss_and_grad, state
        self.gives_early = "ready" in inspect.signature(loss_and_grad).parameters

    def __call__(self, params, *batches, dropout_key=None, **options):
        """The loss, the gradients, and the number of targets."""
        loss = np.float64(0)
        n_targets = 0
        for i, batch in enumerate(batches):
            given = GivenGradients(self.state.places, partial(self.add, is_first=i == 0))
            options["dropout_key"] = derive_key(dropout_key, i)
            if self.gives_early:
                options["ready"] = given.ready
            results = self.loss_and_grad(params, *batch, **options)
            loss_of_batch, n = given.finish(results)
            loss = loss + loss_of_batch  # each was divided by the targets of all batches
            n_targets += n
        return loss, self.state.grads, n_targets

    def add(self, path, grad, is_first):
        """Add a gradient to those of the batches before."""
        place, shape = self.state.places[path]
        total = self.state.flat_grads[place].reshape(shape)
        if is_first:
            total[...] = grad
        else:
            total += grad
