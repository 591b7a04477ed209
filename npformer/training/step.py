"""One training step: the gradient, its norm, clipping, and the update."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

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

    The gradient is that of all batches together; their dropout keys are derived from ``key``. Returned are the mean
    loss per target, and the norm of its gradient before clipping.
    """
    n_targets, loss_scale, lr, step = numbers
    losses, sums = [], trainer.sums
    options = {"n_tokens": n_targets, "backend": trainer.ops, **trainer.options}
    if trainer.precision.has_loss_scale:
        options["loss_scale"] = loss_scale
    with trainer.precision.computing() as params:

        def gradient(shard):
            (batch, dropout_key), more = shard
            return trainer.model.loss_and_grad(params, *batch, dropout_key=dropout_key, **options, **more)

        for i, batch in enumerate(batches):
            shards = trainer.shards(batch, derive_key(key, i))
            work = sums.begin(shards, is_first=i == 0, is_last=i == len(batches) - 1)
            by_blas = trainer.n_shards in (None, 1) and len(work) == 1  # which divides the products among its threads
            results = list(map(gradient, work)) if by_blas else trainer.ops.device.run_shards(gradient, work)
            losses.append([loss for loss, *_ in results])
            sums.add([grads for _, grads, _ in results])

    for piece in sums.pieces:
        if piece.frozen:
            sums.flat_grads[piece.place] = 0
    loss, norm = sums.totals(losses)
    norm = norm / loss_scale
    clipping = 1.0 if trainer.clip_norm is None else trainer.clip_norm / np.maximum(norm, trainer.clip_norm)
    grad_scale = np.where(np.isfinite(loss + norm), clipping / loss_scale, np.nan)
    for piece in sums.pieces:
        if not piece.frozen:
            state = {name: x[piece.state] for name, x in trainer.state.items()}
            arrays = trainer.flat_params[piece.place], sums.flat_grads[piece.place], state
            trainer.optimizer.update(trainer.ops, *arrays, step, grad_scale, lr, piece.decay)
    sums.share_parameters()
    return loss, norm
