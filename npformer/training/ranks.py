"""A step on several ranks, which add up their gradients and divide the update.

The flat gradient is cut into chunks, from its end, where the backward pass begins, and each chunk
into one piece for each rank. As soon as a chunk is complete, the ranks begin to send each other its
pieces, for which a thread calls MPI (``Messenger``) while the backward pass goes on, and each adds
up what it receives for its own piece (``Exchange``). MPI's reduce-scatter adds in an order that
depends on the number of ranks. Here the shards of a batch are the leaves of a tree (``sums.py``),
whichever rank computes them: each rank sends the sums of the subtrees that it has whole, and the
sum of ``tree_sum`` has the same bits on any number of ranks. If several batches make one step, each
rank adds up its part of all of them first.

Each rank updates its own pieces, and has the moments of these alone (``DividedOptimizer``): the
first stage of ZeRO (Rajbhandari et al. 2020). Then the ranks exchange the parameters that they have
updated (all-gather).
"""

from dataclasses import asdict, is_dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from npformer.arrays import digest, on_host
from npformer.models import describe
from npformer.reference.math.update import NORM_BLOCK, norm_of
from npformer.runtime.chunks import DividedArray, chunks_of
from npformer.runtime.messenger import Messenger
from npformer.runtime.ranks import attempted, share_of
from npformer.runtime.sums import subtrees, tree_sum
from npformer.training.checkpoint import settings_of
from npformer.training.flat import FlatOptimizer
from npformer.training.shards import GradientTree, OverShards, sum_of_losses


class OverRanks:
    """The loss and the gradients of a batch, whose shards are divided among all ranks.

    Each rank computes its shards as ``OverShards`` does, and sends its sums to the others in the
    last batch of a step. Then it has the sum of all ranks for the numbers that it updates, in
    ``state.flat_grads``. If the model gives its gradients early, they are sent while others are
    computed. A rank with an error sends what it has, for which the others wait; then all raise the
    error.

    A step brings (n - 1)/n of the gradient's bytes to each of n ranks, and more if a rank has
    several subtrees: for each of them but the first, it sends, and keeps, another flat array.
    """

    def __init__(self, loss_and_grad, state, sharding, optimizer):
        self.on_this_rank = OverShards(loss_and_grad, state, sharding)
        self.sharding, self.ranks = sharding, optimizer.ranks
        self.slots, self.flat = self.on_this_rank.slots, state.flat_grads
        self.flat_sums = [self.flat]  # for the subtrees of this rank, as many as a step has needed
        self.divided = DividedArray(sharding.device, self.flat, optimizer.chunks)
        # Of the batches of a step so far: the losses of this rank's shards, or None and an error.
        self.results: list[tuple] = []

    def __call__(self, batch, dropout_key, options, *, is_first, is_last):
        """Compute a batch; return the loss of all batches with the last one, else 0.

        The losses of all batches are exchanged together, as each exchange takes its time.
        """
        if is_first:
            self.results.clear()
        shards = self.sharding.shards(batch, dropout_key)
        n_shards = len(shards)
        mine = self.ranks.my_share(shards)
        if is_first and not mine:  # nothing of this batch is written over the last gradient
            self.flat[...] = 0
        if is_first and is_last:
            gradients = self.sums_of_subtrees(n_shards)
        else:
            gradients = self.sum_of_batches(n_shards, is_first, is_last)

        def losses_of_mine():
            losses = self.on_this_rank.losses(mine, n_shards, gradients, options)
            return [float(loss) for loss in losses]  # as JSON has them

        self.results.append(attempted(losses_of_mine))
        if gradients.exchange is not None:  # the others wait for what this rank sends
            gradients.exchange.finish()
        return self.loss_of_step() if is_last else 0.0

    def loss_of_step(self):
        """The loss of all batches of a step on all ranks; raises if a rank has an error."""
        error = next((error for _, error in self.results if error is not None), None)
        of_ranks = self.ranks.gather([losses for losses, _ in self.results], error)
        losses_of_batches = [chain(*of_batch) for of_batch in zip(*of_ranks, strict=True)]
        return sum_of_losses(map(sum_of_losses, losses_of_batches))

    def sums_of_subtrees(self, n_shards):
        """The sums of the only batch of a step, of so many shards, which are sent as they come.

        The shards are the leaves of a tree, and each rank sends the sums of the subtrees that it
        has whole.
        """
        subtrees_of = [subtrees(0, n_shards, own) for own in self.shards_of_ranks(n_shards)]
        mine = subtrees_of[self.ranks.rank]
        while len(self.flat_sums) < len(mine):
            self.flat_sums.append(np.empty_like(self.flat))
        flat_sums = self.flat_sums[: len(mine)]
        exchange = Exchange(self.ranks, self.divided, subtrees_of, flat_sums, n_leaves=n_shards)
        sums = dict(zip(mine, flat_sums, strict=True))
        return GradientTree(self.slots, sums, is_first=True, exchange=exchange)

    def sum_of_batches(self, n_shards, is_first, is_last):
        """The sum of one of several batches of a step, of so many shards, and of those before it.

        To keep the sums of subtrees from batch to batch would take more memory. Here what a rank
        has added up by the last batch is one leaf of a tree, and is sent then.
        """
        own = self.shards_of_ranks(n_shards)[self.ranks.rank]
        sums = {(own.start, own.stop): self.flat} if own else {}
        exchange = None
        if is_last:
            size = self.ranks.size
            leaf_of = [[(rank, rank + 1)] for rank in range(size)]
            exchange = Exchange(self.ranks, self.divided, leaf_of, [self.flat], n_leaves=size)
        return GradientTree(self.slots, sums, is_first, exchange)

    def shards_of_ranks(self, n_shards):
        """The numbers of the shards that each rank computes: a range for each rank."""
        size = self.ranks.size
        return [share_of(range(n_shards), rank, size) for rank in range(size)]


class UnderWay(NamedTuple):
    """A chunk that the ranks exchange."""

    requests: list  # of MPI
    parts: dict  # of the sum of this rank's piece: {subtree: array}


class Exchange:
    """The exchange of the gradients of one batch, or of what several have been added up to.

    Parameters
    ----------
    ranks : MpiRanks
    divided : DividedArray
        The flat gradient, which gets the sums.
    subtrees_of : list of lists
        For each rank, the subtrees of which it has the sums: (start, stop).
    flat_sums : list of arrays
        The sums of this rank's subtrees. (A GPU has one shard, and so one at most.)
    n_leaves : int
        The number of leaves of the whole tree.
    """

    def __init__(self, ranks, divided, subtrees_of, flat_sums, n_leaves):
        self.ranks, self.divided = ranks, divided
        self.subtrees_of, self.flat_sums, self.n_leaves = subtrees_of, flat_sums, n_leaves
        self.messenger = Messenger(ranks)
        self.frontier = divided.flat.size  # everything from the frontier on is complete
        self.waiting: dict = {}  # {end: start} of what is complete before the frontier
        self.under_way: list[UnderWay] = []  # of the first chunks

    def complete(self, place):
        """Send what is complete, and let it go on while other gradients are computed."""
        with self.messenger.lock:
            self.waiting[place.stop] = place.start
            while self.frontier in self.waiting:
                self.frontier = self.waiting.pop(self.frontier)
            self._begin_complete_chunks()

    def finish(self):
        """Exchange what is not under way yet, and write the sums of all ranks."""
        self.messenger.end()
        self.frontier = 0
        self._begin_complete_chunks()
        for chunk, under_way in zip(self.divided.chunks, self.under_way, strict=True):
            self.ranks.wait(*under_way.requests)
            total = self.divided.buffer[chunk.own]
            tree_sum(under_way.parts, 0, self.n_leaves, out=total)
            self.divided.from_mpi(chunk.own)
            under_way.parts.clear()  # frees what was received

    def _begin_complete_chunks(self):
        for chunk in self.divided.chunks[len(self.under_way) :]:
            if chunk.place.start < self.frontier:
                break
            under_way = self._begin(chunk)
            self.under_way.append(under_way)
            if self.frontier > 0:  # the backward pass goes on
                self.messenger.deliver(under_way.requests)

    def _begin(self, chunk):
        """Begin to exchange a chunk."""
        divided, comm, me = self.divided, self.ranks.comm, self.ranks.rank
        others = [rank for rank in range(self.ranks.size) if rank != me]
        ours = [divided.to_mpi(chunk.place, flat) for flat in self.flat_sums]
        parts = {}
        for subtree, flat in zip(self.subtrees_of[me], ours, strict=True):
            parts[subtree] = flat[chunk.own]
        requests = []
        for rank in others:
            for subtree in self.subtrees_of[rank]:
                parts[subtree] = np.empty_like(divided.buffer, shape=chunk.counts[me])
                requests.append(comm.Irecv(parts[subtree], source=rank))
        for rank in others:
            requests += [comm.Isend(flat[chunk.pieces[rank]], dest=rank) for flat in ours]
        return UnderWay(requests, parts)


class DividedOptimizer(FlatOptimizer):
    """A ``FlatOptimizer`` of several ranks: each updates some parameters, and has their moments.

    Its ``chunks`` are those of the gradient, too: with ``OverRanks``, a rank has the whole gradient
    of its own pieces alone.
    """

    def __init__(self, optimizer, ops, pieces, flat_params, ranks):
        super().__init__(optimizer, ops, pieces)
        chunks = chunks_of(flat_params.size, ranks.rank, ranks.size, NORM_BLOCK)
        self.pieces = [own for chunk in chunks for own in _own_pieces(chunk, self.pieces)]
        self.ranks, self.chunks = ranks, chunks
        self.params = DividedArray(ops.device, flat_params, chunks)

    def norm(self, flat_grads):
        """The norm of the gradient of all ranks."""
        norms = [on_host(self.ops.norms_of_blocks(flat_grads[x.own])) for x in self.chunks]
        return norm_of(np.concatenate(self.ranks.gather_arrays(np.concatenate(norms))))

    def update(self, state, step, grad_scale, lr):
        """Update the parameters of this rank, send them, and receive the others."""
        super().update(state, step, grad_scale, lr)
        self.share_parameters()

    def share_parameters(self):
        """Send the parameters that this rank has updated, and receive the others."""
        params = self.params
        for chunk in self.chunks:
            params.to_mpi(chunk.own, params.flat)
        in_place, comm = self.ranks.mpi.IN_PLACE, self.ranks.comm
        requests = []
        for chunk in self.chunks:
            whole = [params.buffer[chunk.place], chunk.counts]
            requests.append(comm.Iallgatherv(in_place, whole))
        self.ranks.wait(*requests)
        params.from_mpi()

    def own(self, flat):
        """Copy this rank's pieces of a flat array into one array, as the moments have them."""
        return np.concatenate([flat[chunk.own] for chunk in self.chunks])

    def whole(self, own):
        """All ranks have to call this. On ranks other than 0 the result is empty."""
        own = on_host(own)
        size = self.chunks[0].place.stop
        flat = np.empty(size if self.ranks.is_first else 0, own.dtype)
        for chunk in self.chunks:
            place = [flat[chunk.place], chunk.counts] if self.ranks.is_first else None
            self.ranks.wait(self.ranks.comm.Igatherv(own[chunk.joined], place))
        return flat


def _own_pieces(chunk, pieces):
    """The parts of pieces that lie in this rank's piece of a chunk."""
    shift = chunk.own.start - chunk.joined.start
    own = []
    for piece in pieces:
        start = max(chunk.own.start, piece.place.start)
        stop = min(chunk.own.stop, piece.place.stop)
        if start < stop:
            moments = slice(start - shift, stop - shift)
            own.append(piece._replace(place=slice(start, stop), moments=moments))
    return own


def facts_of(trainer):
    """What has to be the same on all ranks."""
    model = trainer.model
    return {
        "model": describe(model) if is_dataclass(model) else type(model).__name__,
        "settings": settings_of(trainer) | asdict(trainer.settings),
        "backend": trainer.ops.name,
        "parameters": digest([on_host(trainer.flat_params)]),
    }


def facts_of_step(trainer, batches, checked):
    """What has to be the same on all ranks in each step, of what ``_checked`` has returned."""
    n_targets, numbers = checked
    # What else a batch has, such as None in place of a mask, is not compared.
    arrays = [x for batch in batches for x in batch if isinstance(x, np.ndarray)]
    return {
        "step": numbers.step,
        "lr": numbers.lr,
        "shards": [trainer.sharding.count(batch) for batch in batches],
        "targets": n_targets,
        "batch": digest(arrays),
    }
