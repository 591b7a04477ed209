"""The sum of the gradients of all shards and batches of a step, in one process."""

from functools import partial
from itertools import chain

import numpy as np

from npformer import tree
from npformer.training.tree_sum import tree_sum


class GradientSum:
    """Adds up the gradients of a step in ``flat_grads`` (n,), of which ``grads`` has the views.

    ``Exchange`` does it on several ranks.
    """

    def __init__(self, ops, flat_params, flat_grads, grads, pieces):
        self.ops, self.flat_params, self.flat_grads, self.grads = ops, flat_params, flat_grads, grads
        self.pieces = pieces  # what this process updates

    def begin(self, shards, *, is_first, is_last):
        """Prepare for a batch: [(shard, further options of ``loss_and_grad``)] of what this process computes."""
        self.is_first = is_first
        return [(shard, {}) for shard in shards]

    def add(self, gradients):
        """Add the gradients of the shards of a batch; those of the first batch overwrite what was there."""
        tree.map_leaves(partial(add_up, self.is_first), self.grads, *gradients)

    def totals(self, losses):
        """The loss of all shards, given a list with those of this process for each batch, and the norm of the sum."""
        return sum(chain(*losses), np.float64(0)), self.ops.global_norm(self.flat_grads)

    def not_finite(self):
        """The paths of parameters whose gradient holds NaN or inf."""
        return tree.not_finite(self.grads)

    def own(self, flat):
        """The numbers of a flat array that belong to the parameters which this process updates."""
        return flat

    def whole(self, own):
        """The inverse of ``own``, in the process that saves checkpoints."""
        return own

    def share_parameters(self):
        """Let all processes have the parameters that each has updated."""


def add_up(is_first, total, *gradients):
    """Add arrays, as a tree, to ``total``, or to nothing if these are the first."""
    for grad in gradients:
        if grad.shape != total.shape:  # otherwise it would be broadcast
            raise ValueError(f"a gradient has shape {grad.shape}, expected that of its parameter, {total.shape}")
    parts = {(i, i + 1): grad for i, grad in enumerate(gradients)}
    if is_first:
        tree_sum(parts, 0, len(parts), out=total)
    else:
        total += tree_sum(parts, 0, len(parts))
