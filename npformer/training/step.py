"""One training step: the gradient, its norm, clipping, and the update."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from npformer.reference import derive_key


class Numbers(NamedTuple):
    """The numbers that differ from step to step. A recorded step reads them from memory of the device."""

    n_targets: Any  # targets that are not padding, in all batches of the step
    loss_scale: Any  # the loss is multiplied by this before the backward pass
    lr: Any
    step: Any  # 1 is the first


def can_update(loss, norm, clip_norm, dtype):
    """Whether the loss is finite, and so are the squares of the gradient after clipping, of which Adam keeps the mean.

    ``dtype`` is that of the parameters. Those of half precision are updated in float32.
    """
    clipped = norm if clip_norm is None else np.minimum(norm, clip_norm)
    largest = np.sqrt(np.finfo(np.promote_types(dtype, np.float32)).max)
    return np.isfinite(loss + norm) & (clipped < largest)


def training_step(state, batches, key, numbers, *, model, optimizer, sharding, sums, settings):
    """Compute loss and gradient, norm and clipping, and update the parameters.

    No Python branch depends on the value of an array, so a GPU can record the step. Unless ``can_update`` holds of the
    loss and the norm, ``grad_scale`` is NaN, and the update changes nothing.

    ``state`` is a ``TrainState``. The gradient is that of all batches together, tuples of what the model takes, whose
    dropout keys are derived from ``key``. The results are the mean loss per target, and the norm of its gradient before
    clipping. ``numbers`` are ``Numbers``, or an array of the device with them: the trainer counts the step, and after
    an overflow of float16 it calls this again, with a smaller loss scale. The ``Sharding`` says who computes which
    rows, and the ``GradientSum`` adds up the gradients of all shards and batches in ``sums.flat``.
    """
    n_targets, loss_scale, lr, step = numbers
    ops, clip_norm, losses = sums.ops, settings.clip_norm, []
    with state.precision.computing() as params:

        def loss_of(shard):  # of the batch whose gradients ``total`` adds up
            given = {"dropout_key": shard.dropout_key, "n_tokens": n_targets, "backend": ops, **settings.of_loss}
            given |= state.precision.options(loss_scale)
            if sums.takes_ready:
                given["ready"] = partial(total.ready, shard.number)
            loss, grads, _ = model.loss_and_grad(params, *shard.batch, **given)
            total.add(shard.number, grads)  # what the model did not give to ``ready``
            return loss

        for i, batch in enumerate(batches):
            shards = sharding.shards(batch, derive_key(key, i))
            with sums.tree(len(shards), is_first=i == 0, is_last=i == len(batches) - 1) as total:
                losses.append(sharding.run(loss_of, shards))  # of the shards of this rank
        # At the end of the last batch's block, ranks have exchanged the sum over all batches.

    for piece in sums.pieces:  # parameters that this rank updates
        if piece.frozen:
            sums.flat[piece.place] = 0  # it is no part of the norm
    loss, norm = sums.totals(losses)
    norm = norm / loss_scale
    clipping = 1.0 if clip_norm is None else clip_norm / np.maximum(norm, clip_norm)
    is_usable = can_update(loss, norm, clip_norm, state.flat_params.dtype)
    grad_scale = np.where(is_usable, clipping / loss_scale, np.nan)
    for piece in sums.pieces:
        if not piece.frozen:
            moments = {name: x[piece.state] for name, x in state.moments.items()}
            arrays = state.flat_params[piece.place], sums.flat[piece.place], moments
            optimizer.update(ops, *arrays, step, grad_scale, lr, piece.decay)
    sums.share_parameters()
    return loss, norm
