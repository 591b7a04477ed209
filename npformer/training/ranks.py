"""A step on several ranks, which add up their gradients and divide the update.

The flat gradient is cut into chunks, from its end, where the backward pass begins, and each chunk
into one piece for each rank. As soon as a chunk is complete, the ranks begin to send each other its
pieces, for which a thread calls MPI (``Messenger``) while the backward pass goes on, and each adds
up what it receives for its own piece (``Sending``). MPI's reduce-scatter adds in an order that
depends on the number of ranks. Here the shards of a batch are the leaves of a tree (``flat.py``),
whichever rank computes them: each rank sends the sums of the subtrees that it has whole, and the
sum of ``tree_sum`` has the same bits on any number of ranks. If several batches make one step, each
rank adds up its part of all of them first.

Each rank updates its own pieces, and has the moments of these alone (``DividedOptimizer``): the
first stage of ZeRO (Rajbhandari et al. 2020). Then the ranks exchange the parameters that they have
updated (all-gather).
"""

import os
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from npformer.arrays import on_host
from npformer.reference import derive_key
from npformer.reference.math.update import BLOCK, norm_of
from npformer.runtime.messenger import Messenger
from npformer.runtime.ranks import share_of
from npformer.training.flat import FlatOptimizer, GradientTree, subtrees, tree_sum
from npformer.training.shards import InThreads

GPU_AWARE = "NPFORMER_GPU_AWARE_MPI"  # set in the environment if MPI takes arrays of the GPU
SMALLEST, LARGEST = 2**16, 2**22  # numbers of a chunk
WANTED = 16  # chunks, unless they would be smaller or larger


class Chunk(NamedTuple):
    """A part of the flat arrays; each rank owns a piece of it."""

    pieces: list[slice]  # of each rank, in the flat arrays
    own: slice  # that of this rank
    state: slice  # the same, in the optimizer's state of this rank

    @property
    def place(self):
        """The whole part, in the flat arrays."""
        return slice(self.pieces[0].start, self.pieces[-1].stop)

    @property
    def inside(self):
        """The pieces, counted from the beginning of the chunk."""
        start = self.place.start
        return [slice(piece.start - start, piece.stop - start) for piece in self.pieces]

    @property
    def counts(self):
        """How many numbers each rank owns."""
        return [piece.stop - piece.start for piece in self.pieces]


def chunks_of(n, rank, size):
    """Cut n numbers into chunks, the last one first.

    Every piece begins with a block of ``norms_of_blocks``.

    >>> for chunk in chunks_of(100_000, rank=1, size=2):
    ...     print(chunk.place, chunk.own, chunk.state)
    slice(36864, 100000, None) slice(69632, 100000, None) slice(0, 30368, None)
    slice(0, 36864, None) slice(20480, 36864, None) slice(30368, 46752, None)
    """
    length = min(max(-(-n // WANTED), SMALLEST), LARGEST)
    chunks: list[Chunk] = []
    stop = n
    n_owned = 0
    while stop > 0:
        start = _in_blocks(max(0, stop - length))
        inner = [start + _in_blocks((stop - start) * i // size) for i in range(1, size)]
        edges = [start, *(min(edge, stop) for edge in inner), stop]
        pieces = [slice(*pair) for pair in pairwise(edges)]
        own = pieces[rank]
        state = slice(n_owned, n_owned + own.stop - own.start)
        chunks.append(Chunk(pieces, own, state))
        stop = start
        n_owned = state.stop
    return chunks


def _in_blocks(n):
    """The smallest multiple of ``BLOCK`` that is not below n."""
    return -(-n // BLOCK) * BLOCK


class OverRanks:
    """A ``loss_and_grad`` of the batches of a step, whose shards are divided among all ranks.

    Each rank computes its shards as ``OverShards`` does, and sends its sums to the others. Then it
    has the sum of all ranks for the numbers that it updates, in ``state.flat_grads``. If the
    model's ``loss_and_grad`` takes ``ready``, gradients are sent while others are computed.

    A step brings (n - 1)/n of the gradient's bytes to each of n ranks, and more if a rank has
    several subtrees: for each of them but the first, it sends, and keeps, another flat array.
    """

    def __init__(self, loss_and_grad, sharding, state, ops, ranks):
        self.sharding, self.state, self.ops, self.ranks = sharding, state, ops, ranks
        self.threads = InThreads(loss_and_grad, sharding.device)
        self.flat = state.flat_grads
        self.chunks = chunks_of(self.flat.size, ranks.rank, ranks.size)
        self.flat_sums = [self.flat]  # for the subtrees of this rank, as many as a step has needed
        self.for_mpi = ForMPI(ops.device, self.flat)

    def __call__(self, params, *batches, dropout_key=None, **options):
        """The loss of all ranks together, the gradients, and the targets of this rank."""
        losses = []  # of this rank's shards, for each batch
        n_targets = 0
        for i, batch in enumerate(batches):
            shards = self.sharding.shards(batch, derive_key(dropout_key, i))
            gradients = self.tree(len(shards), is_first=i == 0, is_last=i + 1 == len(batches))
            results = self.compute(shards, gradients, params, options)
            losses.append([float(loss) for loss, _ in results])  # which JSON can hold
            n_targets += sum(n for _, n in results)
        return self._sum_of(losses), self.state.grads, n_targets

    def _sum_of(self, losses):
        """The sum over all ranks, in the order of the batches and of their shards."""
        loss = np.float64(0)
        for of_ranks in zip(*self.ranks.gather(losses), strict=True):
            loss += sum(chain(*of_ranks), np.float64(0))
        return loss

    def compute(self, shards, gradients, params, options):
        """Add up the gradients of this rank's shards, and exchange the sums after the last batch.

        Return the loss and the number of targets of each shard of this rank.
        """
        sending = gradients.sending
        mine = self.ranks.my_share(shards)
        try:
            results = self.threads.compute(mine, len(shards), gradients, params, options)
            if sending is not None:
                sending.finish()
        finally:
            if sending is not None:
                sending.messenger.end()  # leave no thread behind
        return results

    def tree(self, n_shards, *, is_first, is_last):
        """The sum of a batch of so many shards, the first or last of a step, both, or another."""
        own = self._shards_of(n_shards)[self.ranks.rank]
        if is_first and not own:  # nothing of this batch is written over the last gradient
            self.flat[...] = 0
        if is_first and is_last:
            return self._tree_of_one_batch(n_shards)
        return self._tree_of_several_batches(own, is_first, is_last)

    def _tree_of_one_batch(self, n_shards):
        """The tree of all shards. Each rank sends the sums of the subtrees that it has whole."""
        subtrees_of = [subtrees(0, n_shards, shards) for shards in self._shards_of(n_shards)]
        own = subtrees_of[self.ranks.rank]
        while len(self.flat_sums) < len(own):
            self.flat_sums.append(np.empty_like(self.flat))
        flat_sums = self.flat_sums[: len(own)]
        sending = Sending(self, subtrees_of, flat_sums, n_leaves=n_shards)
        sum_of = dict(zip(own, flat_sums, strict=True))
        return GradientTree(self.state.places, sum_of, is_first=True, sending=sending)

    def _tree_of_several_batches(self, own, is_first, is_last):
        """The tree of this rank's shards of one batch, whose sum is added to those before.

        What a rank has added up by the last batch is one leaf of the tree that is exchanged: to
        keep a sum for each subtree, from batch to batch, would take more memory.
        """
        sending = None
        if is_last:
            leaves = [[(rank, rank + 1)] for rank in range(self.ranks.size)]
            sending = Sending(self, leaves, [self.flat], n_leaves=self.ranks.size)
        sum_of = {(own.start, own.stop): self.flat} if own else {}
        return GradientTree(self.state.places, sum_of, is_first, sending)

    def _shards_of(self, n_shards):
        """The numbers of the shards of each rank, as ranges."""
        size = self.ranks.size
        return [share_of(range(n_shards), rank, size) for rank in range(size)]


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
        flat, device = self.over_ranks.flat, self.over_ranks.ops.device
        for chunk, (requests, parts) in zip(self.over_ranks.chunks, self.under_way, strict=True):
            self.ranks.wait(*requests)
            if self.over_ranks.for_mpi.is_direct:
                tree_sum(parts, 0, self.n_leaves, out=flat[chunk.own])
            else:
                flat[chunk.own] = device.asarray(tree_sum(parts, 0, self.n_leaves))
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
        for subtree, chunk_sum in zip(self.subtrees_of[me], ours, strict=True):
            parts[subtree] = chunk_sum[chunk.inside[me]]
        requests = []
        for rank in others:
            for subtree in self.subtrees_of[rank]:
                parts[subtree] = np.empty_like(for_mpi.buffer, shape=chunk.counts[me])
                requests.append(comm.Irecv(parts[subtree], source=rank))
        for rank in others:
            requests += [comm.Isend(x[chunk.inside[rank]], dest=rank) for x in ours]
        return requests, parts


class DividedOptimizer(FlatOptimizer):
    """A ``FlatOptimizer`` of several ranks: each updates some parameters, and has their moments."""

    def __init__(self, optimizer, ops, state, frozen, ranks):
        super().__init__(optimizer, ops, state, frozen)
        self.ranks = ranks
        self.chunks = chunks_of(state.flat_params.size, ranks.rank, ranks.size)
        self.pieces = [own for chunk in self.chunks for own in _own_pieces(chunk, self.pieces)]
        self.for_mpi = ForMPI(ops.device, state.flat_params)

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


class ForMPI:
    """A flat array as MPI reads and writes it.

    It is the array itself, or a copy in host memory if MPI cannot reach the memory of a GPU.
    """

    def __init__(self, device, flat):
        self.device, self.flat = device, flat
        self.is_direct = isinstance(flat, np.ndarray) or bool(os.environ.get(GPU_AWARE))
        self.buffer = flat if self.is_direct else device.host_memory(flat.size, flat.dtype)

    def sent(self, place, flat=None):
        """The numbers at a place, or those of another flat array there, where MPI can read them."""
        flat = self.flat if flat is None else flat
        if self.is_direct:
            self.device.wait()
            return flat[place]
        return on_host(flat[place], out=self.buffer[place])

    def received(self):
        """Take what MPI has written into the buffer."""
        if not self.is_direct:
            self.flat[...] = self.device.asarray(self.buffer)
