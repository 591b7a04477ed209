"""A step on several ranks, which add up their gradients and divide the update.

The flat gradient is cut into chunks, from its end, where the backward pass begins, and each chunk
into one piece for each rank. As soon as a chunk is complete, the ranks begin to send each other its
pieces, for which a thread calls MPI (``Messenger``) while the backward pass goes on, and each adds
up what it receives for its own piece (``Sending``). MPI's reduce-scatter adds in an order that
depends on the number of ranks. Here the shards of a batch are the leaves of a tree (``sums.py``),
whichever rank computes them: each rank sends the sums of the subtrees that it has whole, and the
sum of ``tree_sum`` has the same bits on any number of ranks. If several batches make one step, each
rank adds up its part of all of them first.

Each rank updates its own pieces, and has the moments of these alone (``DividedOptimizer``): the
first stage of ZeRO (Rajbhandari et al. 2020). Then the ranks exchange the parameters that they have
updated (all-gather).
"""

from itertools import chain

import numpy as np

from npformer.arrays import on_host
from npformer.reference import derive_key
from npformer.reference.math.update import NORM_BLOCK, norm_of
from npformer.runtime.chunks import ForMPI, chunks_of
from npformer.runtime.messenger import Messenger
from npformer.runtime.ranks import share_of
from npformer.runtime.sums import subtrees, tree_sum
from npformer.training.flat import FlatOptimizer
from npformer.training.shards import GradientTree, OverShards, loss_of_batch


class OverRanks(OverShards):
    """Loss and gradients of the batches of a step, whose shards are divided among all ranks.

    Each rank computes its shards as ``OverShards`` does, and sends its sums to the others. Then it
    has the sum of all ranks for the numbers that it updates, in ``state.flat_grads``. If the
    model's ``loss_and_grad`` takes ``ready``, gradients are sent while others are computed. The
    loss is that of all ranks together, the number of targets that of this rank. A rank with an
    error sends what it has, for which the others wait; then all raise the error.

    A step brings (n - 1)/n of the gradient's bytes to each of n ranks, and more if a rank has
    several subtrees: for each of them but the first, it sends, and keeps, another flat array.
    """

    def __init__(self, loss_and_grad, sharding, state, ranks):
        super().__init__(loss_and_grad, sharding, state)
        self.ranks = ranks
        self.flat = state.flat_grads
        self.chunks = chunks_of(self.flat.size, ranks.rank, ranks.size, NORM_BLOCK)
        self.flat_sums = [self.flat]  # for the subtrees of this rank, as many as a step has needed
        self.for_mpi = ForMPI(sharding.device, self.flat)

    def __call__(self, params, *batches, dropout_key=None, **options):
        """The loss, the gradients, and the number of targets."""
        losses = []  # of this rank's shards of each batch
        n_targets = 0
        error = None
        for i, batch in enumerate(batches):
            shards = self.sharding.shards(batch, derive_key(dropout_key, i))
            is_last = i + 1 == len(batches)
            gradients = self.tree(len(shards), is_first=i == 0, is_last=is_last)
            mine = self.ranks.my_share(shards)
            try:
                results = self.compute(mine, len(shards), gradients, params, options)
                losses.append([float(loss) for loss, _ in results])  # as JSON has them
                n_targets += sum(n for _, n in results)
            except BaseException as raised:  # the others wait for what this rank sends
                error = raised if error is None else error
            if gradients.sending is not None:
                gradients.sending.finish()
        of_ranks = self.ranks.gather(losses, error)
        loss = np.float64(0)
        for of_batch in zip(*of_ranks, strict=True):
            loss = loss + loss_of_batch(chain(*of_batch))
        return loss, self.state.grads, n_targets

    def tree(self, n_shards, *, is_first, is_last):
        """The sum of a batch of so many shards, the first or last of a step, both, or another.

        The shards of one batch are the leaves of a tree, and each rank sends the sums of the
        subtrees that it has whole. To keep these sums from batch to batch would take more memory:
        what a rank has added up by the last of several batches is one leaf.
        """
        size, me = self.ranks.size, self.ranks.rank
        shards_of = [share_of(range(n_shards), rank, size) for rank in range(size)]
        own = shards_of[me]
        if is_first and not own:  # nothing of this batch is written over the last gradient
            self.flat[...] = 0
        sums = {(own.start, own.stop): self.flat} if own else {}
        sending = None
        if is_first and is_last:
            subtrees_of = [subtrees(0, n_shards, shards) for shards in shards_of]
            mine = subtrees_of[me]
            while len(self.flat_sums) < len(mine):
                self.flat_sums.append(np.empty_like(self.flat))
            sums = dict(zip(mine, self.flat_sums[: len(mine)], strict=True))
            sending = Sending(self, subtrees_of, list(sums.values()), n_leaves=n_shards)
        elif is_last:
            leaves = [[(rank, rank + 1)] for rank in range(size)]
            sending = Sending(self, leaves, [self.flat], n_leaves=size)
        return GradientTree(self.state.places, sums, is_first, sending)


class Sending:
    """The exchange of the gradients of one batch, or of what several have been added up to.

    Parameters
    ----------
    over_ranks : OverRanks
    subtrees_of : list of lists
        For each rank, the subtrees of which it has the sums: (start, stop).
    flat_sums : list of arrays
        The sums of this rank's subtrees. (A GPU has one shard, and so one at most.)
    n_leaves : int
        The number of leaves of the whole tree.
    """

    def __init__(self, over_ranks, subtrees_of, flat_sums, n_leaves):
        self.over_ranks, self.ranks = over_ranks, over_ranks.ranks
        self.subtrees_of, self.flat_sums, self.n_leaves = subtrees_of, flat_sums, n_leaves
        self.messenger = Messenger(self.ranks)
        self.frontier = over_ranks.flat.size  # everything from the frontier on is complete
        self.waiting: dict = {}  # {end: start} of what is complete before the frontier
        self.under_way: list = []  # what ``_exchange`` has returned for each chunk so far

    def complete(self, place):
        """Send what is complete, and let it go on while other gradients are computed."""
        with self.messenger.lock:
            self.waiting[place.stop] = place.start
            while self.frontier in self.waiting:
                self.frontier = self.waiting.pop(self.frontier)
            self._exchange_complete_chunks()

    def finish(self):
        """Exchange what is not under way yet, and write the sums of all ranks."""
        self.messenger.end()
        self.frontier = 0
        self._exchange_complete_chunks()
        for_mpi = self.over_ranks.for_mpi
        for chunk, (requests, parts) in zip(self.over_ranks.chunks, self.under_way, strict=True):
            self.ranks.wait(*requests)
            tree_sum(parts, 0, self.n_leaves, out=for_mpi.buffer[chunk.own])
            for_mpi.received(chunk.own)
            parts.clear()  # frees what was received

    def _exchange_complete_chunks(self):
        for chunk in self.over_ranks.chunks[len(self.under_way) :]:
            if chunk.place.start < self.frontier:
                break
            requests, parts = self._exchange(chunk)
            self.under_way.append((requests, parts))
            if self.frontier > 0:  # the backward pass goes on
                self.messenger.deliver(requests)

    def _exchange(self, chunk):
        """Begin to exchange a chunk.

        Return MPI's requests, and the parts of the sum of this rank's piece: {subtree: array}.
        """
        for_mpi, comm, me = self.over_ranks.for_mpi, self.ranks.comm, self.ranks.rank
        others = [rank for rank in range(self.ranks.size) if rank != me]
        ours = [for_mpi.sent(chunk.place, flat) for flat in self.flat_sums]
        parts = {}
        for subtree, flat in zip(self.subtrees_of[me], ours, strict=True):
            parts[subtree] = flat[chunk.own]
        requests = []
        for rank in others:
            for subtree in self.subtrees_of[rank]:
                parts[subtree] = np.empty_like(for_mpi.buffer, shape=chunk.counts[me])
                requests.append(comm.Irecv(parts[subtree], source=rank))
        for rank in others:
            requests += [comm.Isend(flat[chunk.pieces[rank]], dest=rank) for flat in ours]
        return requests, parts


class DividedOptimizer(FlatOptimizer):
    """A ``FlatOptimizer`` of several ranks: each updates some parameters, and has their moments.

    ``alone`` is that of a training in one process.
    """

    def __init__(self, alone, flat_params, ranks):
        self.optimizer, self.ops, self.frozen = alone.optimizer, alone.ops, alone.frozen
        self.ranks = ranks
        self.chunks = chunks_of(flat_params.size, ranks.rank, ranks.size, NORM_BLOCK)
        self.pieces = [own for chunk in self.chunks for own in _own_pieces(chunk, alone.pieces)]
        self.for_mpi = ForMPI(self.ops.device, flat_params)

    def norm(self, flat_grads):
        """The norm of the gradient of all ranks."""
        norms = [on_host(self.ops.norms_of_blocks(flat_grads[x.own])) for x in self.chunks]
        return norm_of(np.concatenate(self.ranks.gather_arrays(np.concatenate(norms))))

    def update(self, state, **numbers):
        """Update the parameters of this rank, send them, and receive the others."""
        super().update(state, **numbers)
        self.share_parameters()

    def share_parameters(self):
        """Send the parameters that this rank has updated, and receive the others."""
        params = self.for_mpi
        for chunk in self.chunks:
            params.sent(chunk.own)
        in_place, comm = self.ranks.mpi.IN_PLACE, self.ranks.comm
        requests = []
        for chunk in self.chunks:
            whole = [params.buffer[chunk.place], chunk.counts]
            requests.append(comm.Iallgatherv(in_place, whole))
        self.ranks.wait(*requests)
        params.received()

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
            self.ranks.wait(self.ranks.comm.Igatherv(own[chunk.state], place))
        return flat


def _own_pieces(chunk, pieces):
    """The parts of pieces that lie in this rank's piece of a chunk."""
    shift = chunk.own.start - chunk.state.start
    own = []
    for piece in pieces:
        start = max(chunk.own.start, piece.place.start)
        stop = min(chunk.own.stop, piece.place.stop)
        if start < stop:
            state = slice(start - shift, stop - shift)
            own.append(piece._replace(place=slice(start, stop), state=state))
    return own
