"""The division of a batch into shards: which rows each thread of each rank computes."""

from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.reference import split_key

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

    def __init__(self, device, ranks, n_shards, params):
        self.device, self.ranks, self.n_shards = device, ranks, n_shards
        self.worth_a_shard = FOR_THE_PARAMETERS + FOR_AN_ARRAY * len(tree.leaves(params)) // max(1, tree.count(params))
        if device.asynchronous and n_shards not in (None, ranks.size):
            wanted = f"None or {ranks.size}"
            raise ValueError(f"n_shards={n_shards} on a GPU, which computes a batch as one, expected {wanted}")
        if n_shards is not None and n_shards < ranks.size:
            raise ValueError(f"n_shards={n_shards}, expected one or more for each of {ranks.size} ranks")

    def count(self, batch) -> int:
        """The number of shards of a batch, on all ranks together."""
        if not (batch and all(isinstance(x, np.ndarray) and x.ndim for x in batch)):  # a model may take anything else
            return 1
        n = self.n_shards
        if n is None:
            worth = max(x.size for x in batch) // (self.worth_a_shard * self.ranks.size)
            on_each = 1 if worth < WORTH_IT else min(self.device.n_parts(), worth)
            n = on_each * self.ranks.size
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

    def run(self, work, shards) -> list:
        """The results of ``work`` for the shards that this rank computes."""
        mine = self.ranks.my_share(shards)
        if len(shards) == len(mine) == 1:  # its matrix products are divided among the threads, if they are large
            return [work(mine[0])]
        return self.device.run_shards(work, mine)
