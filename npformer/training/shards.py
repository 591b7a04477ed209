"""The division of a batch into shards, rows that threads compute at the same time."""

import threading
from functools import partial
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.errors import UserError
from npformer.models.loss_and_grad import GivenGradients
from npformer.reference import split_key
from npformer.runtime.memory import empty
from npformer.runtime.sums import siblings_and_parents

# Beside its rows, a shard costs as much time as so many tokens (entries of the largest array of a
# batch): 50 for reading all parameters and writing their gradients,
FOR_THE_PARAMETERS = 50
# and, for the Python of each array of parameters, 4 million divided by the number of parameters.
FOR_AN_ARRAY = 4 * 10**6
# A batch is divided only if it has tokens for so many shards, of at least as many tokens as a shard
# costs, however few threads there are. Otherwise one shard, whose products are divided among all
# threads, is faster.
WORTH_SHARDS = 4


class Shard(NamedTuple):
    """Rows of a batch that are computed together, or all of them."""

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
            raise UserError(
                f"n_shards={n_shards} on a GPU, which computes a batch as one, {expected}"
            )
        if n_shards is not None and n_shards < n_ranks:
            expected = f"expected one or more for each of {n_ranks} ranks"
            raise UserError(f"n_shards={n_shards}, {expected}")

    def count(self, batch) -> int:
        """The number of shards of a batch, on all ranks together."""
        if not (batch and all(isinstance(x, np.ndarray) and x.ndim for x in batch)):
            return 1  # a model may take anything else
        n = self.n_shards
        if n is None:
            possible = max(x.size for x in batch) // (self.worth_a_shard * self.n_ranks)
            on_each = 1 if possible < WORTH_SHARDS else min(self.device.n_parts(), possible)
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


class Slot(NamedTuple):
    """The part of a flat array that is one parameter, or its gradient."""

    place: slice
    shape: tuple

    def of(self, flat):
        """The part of this flat array, as an array with the shape of the parameter: a view."""
        return flat[self.place].reshape(self.shape)


def slots_of(params) -> dict[str, Slot]:
    """The slot of each parameter, by its path.

    >>> slots_of({"weight": np.zeros((2, 3)), "bias": np.zeros(3)})["bias"]
    Slot(place=slice(6, 9, None), shape=(3,))
    """
    slots = {}
    stop = 0
    for path, x in tree.leaves(params):
        start, stop = stop, stop + x.size
        slots[path] = Slot(slice(start, stop), x.shape)
    return slots


def sum_of_losses(losses):
    """The sum of losses, each of which was divided by the number of targets of all batches."""
    return sum(losses, np.float64(0))


class OverShards:
    """The loss and the gradients of a batch, which is divided into shards.

    It takes the place of ``WholeBatch``. Threads compute the shards at the same time. Each has a
    dropout key that is derived from that of the batch. Their gradients are added up as soon as they
    are there. So a thread needs memory for its activations and for gradients of about two layers,
    not of the whole model.
    """

    def __init__(self, loss_and_grad, state, sharding):
        self.loss_and_grad, self.params = loss_and_grad, state.params
        self.sharding = sharding
        self.flat_grads = state.flat_grads
        self.slots = slots_of(state.params)

    def __call__(self, batch, dropout_key, options, *, is_first, is_last):
        """Compute a batch, and return its loss."""
        shards = self.sharding.shards(batch, dropout_key)
        sums = {(0, len(shards)): self.flat_grads}
        gradients = GradientTree(self.slots, sums, is_first)
        return sum_of_losses(self.losses(shards, len(shards), gradients, options))

    def losses(self, shards, n_shards, gradients, options):
        """Compute some of the ``n_shards`` of a batch, and return the loss of each.

        Their gradients go into a ``GradientTree``. ``OverRanks`` calls this with those of a rank.
        """

        def loss_of(shard):
            take = partial(gradients.add, shard.number)
            given = GivenGradients(self.slots, take)
            results = self.loss_and_grad(
                self.params,
                *shard.batch,
                dropout_key=shard.dropout_key,
                ready=given.ready,
                **options,
            )
            return given.loss_of(results)

        # A batch that is one shard: its products are divided among the threads, if large. One of
        # several, alone on its rank, is computed as the others are.
        if len(shards) == n_shards == 1:
            return [loss_of(shards[0])]
        return self.sharding.device.run_shards(loss_of, shards)


class GradientTree:
    """Adds up the gradients of the shards of a batch, in the order of ``tree_sum``.

    Each shard gives its gradients in any thread. Two arrays are added as soon as both are there, so
    that no shard keeps a whole gradient while the others compute theirs.

    Parameters
    ----------
    slots : dict
        The ``Slot`` of each parameter, by its path.
    sums : dict
        For each subtree, the shards from start to stop: (start, stop) -> the flat array (n,) of
        their sum.
    is_first : bool
        Whether the sum overwrites what is in its array, instead of being added to it.
    exchange : Exchange, optional
        Sends sums to other ranks as soon as they are complete.
    """

    def __init__(self, slots, sums, is_first, exchange=None):
        self.slots, self.is_first, self.exchange = slots, is_first, exchange
        self.sum_with = {}  # by shard: its subtree, and the flat array of the sum
        for root, flat in sums.items():
            self.sum_with |= dict.fromkeys(range(*root), (root, flat))
        self.n_missing = dict.fromkeys(slots, len(sums))  # sums that are not complete
        self.waiting: dict = {}  # by path and subtree: sums whose siblings are not complete
        self.lock = threading.Lock()

    def add(self, shard, path, grad):
        """Add a gradient to that of its sibling, their sum to its own, and so on to the root.

        Of shards 0 to 7, for example, 4 and 5 are added into a new array, 6 and 7 into another, and
        these two sums into one of them. In the first batch of a step, 0 and 1 are added into the
        array of the whole sum, to which that of 2 and 3 is added then, and that of 4 to 7.
        """
        slot = self.slots[path]
        root, flat = self.sum_with[shard]
        total = slot.of(flat)
        node = shard, shard + 1
        while node != root:
            sibling, parent = siblings_and_parents(*root)[node]
            # Whichever of two siblings comes second adds them: a + b is b + a, bit for bit.
            with self.lock:
                other = self.waiting.pop((path, sibling), None)
                if other is None:
                    self.waiting[path, node] = grad
                    return
            if self.is_first and parent[0] == root[0]:
                # The sums that begin with the first shard are made one after another, each from the
                # one before. Nothing else is written into the array of the whole sum until then.
                out = total
            elif node[1] - node[0] > 1:
                out = grad  # a sum of this tree
            else:  # not ``grad``, which a model may have given as another gradient, too
                out = empty(slot.shape, np.result_type(grad, other))
            grad = np.add(grad, other, out=out)
            node = parent
        if not self.is_first:
            total += grad
        elif grad is not total:
            total[...] = grad
        with self.lock:
            self.n_missing[path] -= 1
            is_complete = self.n_missing[path] == 0
        if is_complete and self.exchange is not None:
            self.exchange.complete(slot.place)
