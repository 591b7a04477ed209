"""The division of a batch into shards, rows that threads compute at the same time."""

from functools import partial
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.reference import split_key
from npformer.training.flat_gradients import into_flat, takes_ready
from npformer.training.gradient_tree import GradientTree

# Whatever its rows, a shard reads all parameters, writes their gradients, and runs Python for each array. That takes as
# long as the computation of this number of entries (of the largest array of a batch), which a shard should have:
FOR_THE_PARAMETERS = 50
FOR_AN_ARRAY = 4 * 10**6  # divided by the number of parameters
WORTH_IT = 4  # if there are enough entries for so many shards; one shard, with all threads of BLAS, is faster before


class Shard(NamedTuple):
    """Rows of a batch that are computed together."""

    number: int  # among those of all ranks
    batch: tuple
    dropout_key: int


class Sharding:
    """Divides batches among the threads of all ranks, in ``n_shards`` in all, as of ``TrainingSettings``."""

    def __init__(self, device, n_ranks, n_shards, params):
        self.device, self.n_ranks, self.n_shards = device, n_ranks, n_shards
        self.worth_a_shard = FOR_THE_PARAMETERS + FOR_AN_ARRAY * len(tree.leaves(params)) // max(1, tree.count(params))
        if device.asynchronous and n_shards not in (None, n_ranks):
            wanted = f"None or {n_ranks}"
            raise ValueError(f"n_shards={n_shards} on a GPU, which computes a batch as one, expected {wanted}")
        if n_shards is not None and n_shards < n_ranks:
            raise ValueError(f"n_shards={n_shards}, expected one or more for each of {n_ranks} ranks")

    def count(self, batch) -> int:
        """The number of shards of a batch, on all ranks together."""
        if not (batch and all(isinstance(x, np.ndarray) and x.ndim for x in batch)):  # a model may take anything else
            return 1
        n = self.n_shards
        if n is None:
            worth = max(x.size for x in batch) // (self.worth_a_shard * self.n_ranks)
            on_each = 1 if worth < WORTH_IT else min(self.device.n_parts(), worth)
            n = on_each * self.n_ranks
        return max(1, min(n, len(batch[0])))

    def shards(self, batch, key) -> list[Shard]:
        """The shards of a batch on all ranks, with the dropout keys that are derived from its key."""
        n = self.count(batch)
        rows = {len(x) for x in batch} if n > 1 else ()
        if len(rows) != 1:  # one part, or unequal numbers of rows: the model raises the error
            return [Shard(0, batch, key)]
        parts = [slice(part[0], part[-1] + 1) for part in np.array_split(range(rows.pop()), n)]
        keys = split_key(key, n)
        return [Shard(i, tuple(x[parts[i]] for x in batch), keys[i]) for i in range(n)]


def over_shards(loss_and_grad, sharding, state):
    """A ``loss_and_grad`` that divides its batch into shards, which threads compute at the same time.

    Each has a dropout key of its own. Their gradients are added up in ``state.flat_grads`` as soon as they are there.
    If ``loss_and_grad`` takes ``ready``, no thread keeps a whole gradient.
    """
    gradients_of = for_shards(loss_and_grad)
    undivided = into_flat(loss_and_grad, state)

    def by_shards(params, *batch, dropout_key=None, adds_up=False, **options):
        shards = sharding.shards(batch, dropout_key)
        if len(shards) == 1:  # its matrix products are divided among the threads, if they are large
            return undivided(params, *batch, dropout_key=dropout_key, adds_up=adds_up, **options)
        # one sum, of the shards from the first to the last; ``state.grads`` are its views
        sums = GradientTree(state.places, {(0, len(shards)): state.flat_grads}, is_first=not adds_up)
        work = partial(gradients_of, params, sums, options)
        losses, counts = zip(*sharding.device.run_shards(work, shards), strict=True)
        sums.check_complete()
        # Each loss was divided by the targets of the whole step, so their sum is the mean.
        return sum(losses, np.float64(0)), state.grads, sum(counts)

    return by_shards


def for_shards(loss_and_grad):
    """A function that computes a shard, gives its gradients to ``sums``, and returns its loss and number of targets."""
    gives_early = takes_ready(loss_and_grad)

    def gradients_of(params, sums, options, shard):
        ready = {"ready": partial(sums.ready, shard.number)} if gives_early else {}
        key = shard.dropout_key
        loss, grads, n_targets = loss_and_grad(params, *shard.batch, dropout_key=key, **ready, **options)
        sums.add(shard.number, grads)  # what was not given to ``ready``
        return loss, n_targets

    return gradients_of
