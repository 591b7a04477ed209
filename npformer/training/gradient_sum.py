"""The sum of the gradients of all shards and batches of a step, in one process."""

from itertools import accumulate, chain

import numpy as np

from npformer import tree
from npformer.training.gradient_tree import GradientTree


class GradientSum:
    """Adds up the gradients of a step in ``flat`` (n,); ``Exchange`` does it on several ranks.

    ``params`` are views of ``flat_params`` (n,), ``pieces`` (a list of ``Piece``) what this process updates, and
    ``takes_ready`` says whether the model's ``loss_and_grad`` takes ``ready``.
    """

    def __init__(self, ops, flat_params, params, pieces, takes_ready):
        self.ops, self.pieces, self.takes_ready = ops, pieces, takes_ready
        self.flat = np.zeros_like(flat_params)
        leaves = tree.leaves(params)
        ends = accumulate(x.size for _, x in leaves)
        self.places = {path: (slice(end - x.size, end), x.shape) for (path, x), end in zip(leaves, ends, strict=True)}

    def tree(self, n_shards, *, is_first, is_last):
        """The sum for a batch of this number of shards; the first batch of a step overwrites what there is."""
        return GradientTree(self.places, {(0, n_shards): self.flat}, is_first)

    def totals(self, losses):
        """The loss of all shards, given a list with those of this process for each batch, and the norm of the sum."""
        return sum(chain(*losses), np.float64(0)), self.ops.global_norm(self.flat)

    def not_finite(self):
        """The paths of parameters whose gradient holds NaN or inf."""
        return [path for path, (place, _) in self.places.items() if not np.isfinite(self.flat[place]).all()]

    def own(self, flat):
        """The numbers of a flat array that belong to the parameters which this process updates."""
        return flat

    def whole(self, own):
        """The inverse of ``own``, in the process that saves checkpoints."""
        return own

    def share_parameters(self):
        """Let all processes have the parameters that each has updated."""
