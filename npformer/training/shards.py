"""The division of the batches of a step into shards, rows that threads compute at the same time."""

import numpy as np

from npformer import tree
from npformer.reference import split_key
from npformer.training.flat import GradientTree
from npformer.training.step import OverBatches, Shard

# However few rows a shard has, it reads all parameters, writes their gradients, and runs Python for
# each array of them. In this time it could compute so many entries of the largest array of a batch:
FOR_THE_PARAMETERS = 50
FOR_AN_ARRAY = 4 * 10**6  # divided by the number of parameters
# A shard should have as many entries as both together. If a batch has not enough for this number of
# shards, one shard, whose products are divided among all threads, is faster.
FEWEST_SHARDS = 4


class Sharding:
    """Divides batches among the threads of all ranks; ``n_shards`` is that of the settings."""

    def __init__(self, device, n_ranks, n_shards, params):
        self.device, self.n_ranks, self.n_shards = device, n_ranks, n_shards
        n_arrays = len(tree.leaves(params))
        n_params = max(1, tree.count(params))
        self.worth_a_shard = FOR_THE_PARAMETERS + FOR_AN_ARRAY * n_arrays // n_params
        if device.asynchronous and n_shards not in (None, n_ranks):
            expected = f"expected None or {n_ranks}"
            raise ValueError(
                f"n_shards={n_shards} on a GPU, which computes a batch as one, {expected}"
            )
        if n_shards is not None and n_shards < n_ranks:
            expected = f"expected one or more for each of {n_ranks} ranks"
            raise ValueError(f"n_shards={n_shards}, {expected}")

    def count(self, batch) -> int:
        """The number of shards of a batch, on all ranks together."""
        if not (batch and all(isinstance(x, np.ndarray) and x.ndim for x in batch)):
            return 1  # a model may take anything else
        n = self.n_shards
        if n is None:
            possible = max(x.size for x in batch) // (self.worth_a_shard * self.n_ranks)
            on_each = 1 if possible < FEWEST_SHARDS else min(self.device.n_parts(), possible)
            n = on_each * self.n_ranks
        return max(1, min(n, len(batch[0])))

    def shards(self, batch, key) -> list[Shard]:
        """The shards of a batch on all ranks; the keys of their dropout follow from its key."""
        n = self.count(batch)
        # Of arrays with unequal lengths, the model knows better what is wrong.
        if n == 1 or len({len(x) for x in batch}) > 1:
            return [Shard(0, batch, key)]
        shards = []
        rows_of_all = np.array_split(range(len(batch[0])), n)
        for i, (rows, key_of_shard) in enumerate(zip(rows_of_all, split_key(key, n), strict=True)):
            place = slice(rows[0], rows[-1] + 1)
            shards.append(Shard(i, tuple(x[place] for x in batch), key_of_shard))
        return shards


class OverShards(OverBatches):
    """Loss and gradients of the batches of a step, each of which is divided into shards.

    Threads compute the shards at the same time. Each has a dropout key that is derived from that of
    its batch. Their gradients are added up as soon as they are there. So a thread needs memory for
    its activations and for gradients of about two layers, not for a whole one.
    """

    def __init__(self, loss_and_grad, sharding, state):
        super().__init__(loss_and_grad, state)
        self.sharding = sharding

    def compute(self, batch, key, params, options, *, is_first, is_last):
        """Add the gradients of a batch to those before; return what ``compute_shards`` does."""
        shards = self.sharding.shards(batch, key)
        whole = 0, len(shards)
        gradients = GradientTree(self.state.places, {whole: self.state.flat_grads}, is_first)
        return self.compute_shards(shards, len(shards), gradients, params, options)

    def compute_shards(self, shards, n_shards, gradients, params, options):
        """Add up the gradients of some of the ``n_shards`` of a batch in a ``GradientTree``.

        Return the loss and the number of targets of each.
        """

        def compute(shard):
            return self.compute_shard(shard, gradients, params, options)

        if len(shards) == n_shards == 1:  # its products are divided among the threads, if large
            results = [compute(shards[0])]
        else:
            results = self.sharding.device.run_shards(compute, shards)
        gradients.check_complete()
        return results
