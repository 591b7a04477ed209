"""The division of the batches of a step into shards, rows that threads compute at the same time."""

from functools import partial
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.reference import derive_key, split_key
from npformer.training.flat import GradientTree, takes_ready

# However few rows a shard has, it reads all parameters, writes their gradients, and runs Python for
# each array of them. In this time it could compute so many entries of the largest array of a batch:
FOR_THE_PARAMETERS = 50
FOR_AN_ARRAY = 4 * 10**6  # divided by the number of parameters
# A shard should have as many entries as both together. If a batch has not enough for this number of
# shards, one shard, whose products are divided among all threads, is faster.
FEWEST_SHARDS = 4


class Shard(NamedTuple):
    """Rows of a batch that are computed together."""

    number: int  # among those of all ranks
    batch: tuple
    dropout_key: int


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


class InThreads:
    """Computes shards of a batch in parallel, each in one thread, with a model's loss_and_grad.

    If ``loss_and_grad`` takes ``ready``, it gives each gradient as soon as it is there, so that no
    thread keeps a whole one.
    """

    def __init__(self, loss_and_grad, device):
        self.loss_and_grad, self.device = loss_and_grad, device
        self.gives_early = takes_ready(loss_and_grad)

    def compute(self, shards, n_shards, gradients, params, options):
        """Add up the gradients of some of the ``n_shards`` of a batch in a ``GradientTree``.

        Return the loss and the number of targets of each.
        """

        def compute_shard(shard):
            return self._compute_shard(shard, gradients, params, options)

        if len(shards) == n_shards == 1:  # its products are divided among the threads, if large
            results = [compute_shard(shards[0])]
        else:
            results = self.device.run_shards(compute_shard, shards)
        gradients.check_complete()
        return results

    def _compute_shard(self, shard, gradients, params, options):
        options = options | {"dropout_key": shard.dropout_key}
        if self.gives_early:
            options["ready"] = partial(gradients.ready, shard.number)
        loss, grads, n_targets = self.loss_and_grad(params, *shard.batch, **options)
        gradients.add(shard.number, grads)  # what was not given to ``ready``
        return loss, n_targets


class OverShards:
    """A ``loss_and_grad`` of the batches of a step, each of which is divided into shards.

    The result is that of one batch with all their rows, whose activations need not be in memory at
    once. Each batch has a dropout key that is derived from that of the step, and each shard one
    that is derived from that of its batch. The gradients are added up in ``state.flat_grads`` as
    soon as they are there; those that are returned, ``state.grads``, are views into it. So a thread
    needs memory for its activations and for gradients of about two layers, not for a whole one.
    """

    def __init__(self, loss_and_grad, sharding, state):
        self.sharding, self.state = sharding, state
        self.threads = InThreads(loss_and_grad, sharding.device)

    def __call__(self, params, *batches, dropout_key=None, **options):
        """The loss, the gradients, and the number of targets."""
        loss = np.float64(0)  # each was divided by the targets of all batches
        n_targets = 0
        for i, batch in enumerate(batches):
            shards = self.sharding.shards(batch, derive_key(dropout_key, i))
            n = len(shards)
            gradients = GradientTree(
                self.state.places, {(0, n): self.state.flat_grads}, is_first=i == 0
            )
            results = self.threads.compute(shards, n, gradients, params, options)
            of_batch = sum((x for x, _ in results), np.float64(0))  # in the order of the shards
            loss = loss + of_batch  # not +=, for an array of a GPU
            n_targets += sum(n for _, n in results)
        return loss, self.state.grads, n_targets
