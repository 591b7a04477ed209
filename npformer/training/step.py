"""One training step: the gradient, its norm, clipping, and the update."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from npformer import tree
from npformer.reference import derive_key


class Numbers(NamedTuple):
    """The numbers that differ from step to step. A recorded step reads them from memory of the device."""

    n_targets: Any  # targets that are not padding, in all batches of the step
    loss_scale: Any  # the loss is multiplied by this before the backward pass
    lr: Any
    step: Any  # 1 is the first


def training_step(trainer, batches: Sequence[tuple], key, numbers: Sequence) -> tuple[Any, Any]:
    """Compute loss and gradient, norm and clipping, and update the parameters.

    No Python branch depends on the value of an array, so a GPU can record the step. If the loss or the norm is not
    finite, ``grad_scale`` is NaN, and the update changes nothing.

    Parameters
    ----------
    trainer : Trainer
    batches : sequence of tuples
        The arguments of the model's ``loss_and_grad``; the gradient is that of all batches together.
    key : int
        The key from which the dropout keys of the batches are derived.
    numbers : Numbers

    Returns
    -------
    loss, norm : scalars
        The mean loss per target, and the norm of its gradient before clipping.
    """
    n_targets, loss_scale, lr, step = numbers
    loss = 0.0
    options = {"n_tokens": n_targets, "backend": trainer.ops, **trainer.options}
    if trainer.precision.has_loss_scale:
        options["loss_scale"] = loss_scale
    with trainer.precision.computing() as params:
        gradient = partial(trainer.model.loss_and_grad, params, **options)
        for i, batch in enumerate(batches):
            (first, first_key), *others = shards = trainer.shards(batch, derive_key(key, i))
            if others:
                results = trainer.ops.run_shards(lambda shard: gradient(*shard[0], dropout_key=shard[1]), shards)
            else:
                results = [gradient(*first, dropout_key=first_key)]
            loss = sum((loss_of_shard for loss_of_shard, *_ in results), loss)
            tree.map_leaves(partial(_add_up, i == 0), trainer.grads, *(grads for _, grads, _ in results))

    for part in trainer.parts:
        if part.frozen:
            trainer.flat_grads[part.place] = 0
    norm = trainer.ops.global_norm(trainer.flat_grads) / loss_scale
    clipping = 1.0 if trainer.clip_norm is None else trainer.clip_norm / np.maximum(norm, trainer.clip_norm)
    grad_scale = np.where(np.isfinite(loss + norm), clipping / loss_scale, np.nan)
    for place, frozen, decay in trainer.parts:
        if not frozen:
            state = {name: x[place] for name, x in trainer.state.items()}
            arrays = trainer.flat_params[place], trainer.flat_grads[place], state
            trainer.optimizer.update(trainer.ops, *arrays, step, grad_scale, lr, decay)
    return loss, norm


def _add_up(is_first, total, grad, *others):
    """Add the gradients of the shards to ``total``, which the update reads; the first batch overwrites it."""
    for part in (grad, *others):
        if part.shape != total.shape:  # otherwise it would be broadcast
            raise ValueError(f"a gradient has shape {part.shape}, expected that of its parameter, {total.shape}")
    if not is_first:
        total += grad
    elif others:
        np.add(grad, others[0], out=total)
        others = others[1:]
    else:
        total[...] = grad
    for grad in others:
        total += grad
