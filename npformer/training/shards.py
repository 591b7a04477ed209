"""The division of a batch into shards, rows that threads compute at the same time, and the sum of their gradients.

The order of the sum does not depend on who computes which part of it: n arrays are added as the leaves of a binary
tree, neighbours first, ((x0 + x1) + (x2 + x3)) + …. Whoever has some neighbouring leaves adds up the subtrees that it
has whole; adding these gives the same bits for any division.
"""

import threading
from functools import cache, partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.reference import derive_key, split_key
from npformer.runtime.memory import empty
from npformer.runtime.ranks import OneProcess
from npformer.training.flat import FlatGradients, takes_ready

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


class OverShards:
    """A ``loss_and_grad`` of the batches of a step, of which each is divided into shards.

    Each shard has a dropout key of its own. Their gradients are added up in ``state.flat_grads`` as soon as they are
    there. If ``loss_and_grad`` takes ``ready``, no thread keeps a whole gradient.
    """

    ranks = OneProcess()

    def __init__(self, loss_and_grad, sharding, state):
        self.loss_and_grad, self.gives_early = loss_and_grad, takes_ready(loss_and_grad)
        self.sharding, self.state = sharding, state

    def __call__(self, params, *batches, dropout_key=None, **options):
        """The loss and the gradients of all ranks together, and the number of targets of this rank."""
        losses, n_targets = [], 0  # losses of each batch
        for i, batch in enumerate(batches):
            shards = self.sharding.shards(batch, derive_key(dropout_key, i))
            gradients = self.tree(len(shards), is_first=i == 0, is_last=i + 1 == len(batches))
            results = self.compute(shards, gradients, params, options)
            losses.append([float(loss) for loss, _ in results])
            n_targets += sum(n for _, n in results)
        # Each loss was divided by the targets of the whole step. They are added up batch by batch.
        of_batches = zip(*self.ranks.gather(losses), strict=True)
        loss = sum((sum(chain(*of_batch), np.float64(0)) for of_batch in of_batches), np.float64(0))
        return loss, self.state.grads, n_targets

    def tree(self, n_shards, *, is_first, is_last):
        """The sum for a batch of so many shards, which is the first and the last of a step, or one of several."""
        return GradientTree(self.state.places, {(0, n_shards): self.state.flat_grads}, is_first)

    def compute(self, shards, gradients, params, options):
        """Add up the gradients of this rank's shards; return the loss and the number of targets of each."""

        def compute_shard(shard):
            early = {"ready": partial(gradients.ready, shard.number)} if self.gives_early else {}
            key = shard.dropout_key
            loss, grads, n_targets = self.loss_and_grad(params, *shard.batch, dropout_key=key, **early, **options)
            gradients.add(shard.number, grads)  # what was not given to ``ready``
            return loss, n_targets

        mine = self.ranks.my_share(shards)
        if len(shards) == len(mine) == 1:  # its matrix products are divided among the threads, if they are large
            results = [compute_shard(mine[0])]
        else:
            results = self.sharding.device.run_shards(compute_shard, mine)
        gradients.check_complete()
        return results


class GradientTree(FlatGradients):
    """Adds up the gradients of shards as the leaves of a binary tree, in the order of ``tree_sum``.

    Each shard gives its gradients in any thread. Two arrays are added as soon as both are there, so that no shard keeps
    a whole gradient while the others compute theirs.

    ``sums`` has for each subtree, the shards from start to stop, (start, stop) -> the flat array (n,) of their sum; if
    ``is_first``, the sum overwrites it, instead of being added to it. ``sending`` sends sums to other ranks as soon as
    they are complete.
    """

    def __init__(self, places, sums, is_first, sending=None):
        super().__init__(places, None, is_first)
        self.sum_of = {shard: (root, flat) for root, flat in sums.items() for shard in range(*root)}
        self.shards = list(self.sum_of)
        self.sending = sending
        self.n_missing = dict.fromkeys(places, len(sums))
        self.waiting: dict = {}  # sums of subtrees whose siblings are not complete, by path and subtree
        self.lock = threading.Lock()

    def _add(self, shard, path, grad):
        place, shape = self.places[path]
        root, flat = self.sum_of[shard]
        node = shard, shard + 1
        total = flat[place].reshape(shape)
        while node != root:
            sibling, parent = relatives(*root)[node]
            with self.lock:
                other = self.waiting.pop((path, sibling), None)
                if other is None:
                    self.waiting[path, node] = grad
                    return
            if self.is_first and parent[0] == root[0]:  # the total has no other use before it is complete
                out = total
            elif node[1] - node[0] > 1:  # a sum of this tree
                out = grad
            else:  # a model may use an array that it has given as other gradients too
                out = empty(shape, np.result_type(grad, other))
            grad, node = np.add(grad, other, out=out), parent
        if not self.is_first:
            total += grad
        elif grad is not total:
            total[...] = grad
        with self.lock:
            self.n_missing[path] -= 1
            is_complete = self.n_missing[path] == 0
        if is_complete and self.sending is not None:
            self.sending.complete(place)


def tree_sum(parts, start, stop, out=None):
    """Add up the leaves from ``start`` to ``stop``, in ``out`` if given.

    ``parts`` is a dict of (start, stop) to array: sums of subtrees, which together hold all these leaves. ``out`` may
    be one of them.

    >>> a, b, c = np.float32([1e8, 1, -1e8])
    >>> tree_sum({(0, 1): a, (1, 2): b, (2, 3): c}, 0, 3) == (a + b) + c == tree_sum({(0, 2): a + b, (2, 3): c}, 0, 3)
    np.True_
    """
    if (start, stop) in parts:
        part = parts[start, stop]
        if out is None or out is part:
            return part
        out[...] = part
        return out
    middle = start + half(stop - start)
    return np.add(tree_sum(parts, start, middle), tree_sum(parts, middle, stop), out=out)


def subtrees(start, stop, own):
    """The largest subtrees, of the tree with the leaves from ``start`` to ``stop``, that lie in a range.

    >>> subtrees(0, 12, range(0, 4)), subtrees(0, 12, range(3, 6))
    ([(0, 4)], [(3, 4), (4, 6)])
    """
    if own.start <= start and stop <= own.stop:
        return [(start, stop)]
    if stop <= own.start or own.stop <= start:
        return []
    middle = start + half(stop - start)
    return subtrees(start, middle, own) + subtrees(middle, stop, own)


@cache
def relatives(start, stop):
    """For each subtree below that with the leaves from ``start`` to ``stop``: its sibling, and their parent.

    >>> relatives(0, 2)
    {(0, 1): ((1, 2), (0, 2)), (1, 2): ((0, 1), (0, 2))}
    """
    if stop - start == 1:
        return {}
    middle = start + half(stop - start)
    left, right, parent = (start, middle), (middle, stop), (start, stop)
    return {left: (right, parent), right: (left, parent)} | relatives(*left) | relatives(*right)


def half(n):
    """The number of leaves of n in the left subtree: the largest power of two below n."""
    return 1 << ((n - 1).bit_length() - 1)
