"""A step on several ranks, which add up their gradients and divide the update.

The flat gradient is cut into chunks, from its end, where the backward pass begins, and each chunk
into one piece for each rank. As soon as a chunk is complete, the ranks begin to send each other its
pieces, for which a thread calls MPI (``Messenger``) while the backward pass goes on, and each adds
up what it receives for its own piece (``OverRanks``). MPI's reduce-scatter adds in an order that
depends on the number of ranks; the sum of ``tree_sum`` has the same bits on any number of them. If
several batches make one step, each rank adds up its part of all of them first.

Each rank updates its own pieces, and has the moments of these alone (``DividedOptimizer``): the
first stage of ZeRO (Rajbhandari et al. 2020). Then the ranks exchange the parameters that they have
updated (all-gather).
"""

import os
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from npformer.arrays import on_host
from npformer.reference.math.update import BLOCK, norm_of
from npformer.runtime.messenger import Messenger
from npformer.runtime.ranks import share_of
from npformer.training.flat import FlatOptimizer, GradientTree, subtrees, tree_sum
from npformer.training.shards import OverShards

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


class OverRanks(OverShards):
    """A ``loss_and_grad`` of the batches of a step, whose shards are divided among all ranks.

    Each rank has the sum of the numbers that it updates, in ``state.flat_grads``. If the model's
    ``loss_and_grad`` takes ``ready``, gradients are sent while others are computed.
    """

    def __init__(self, loss_and_grad, sharding, state, ops, ranks):
        super().__init__(loss_and_grad, sharding, state)
        self.ops, self.ranks, self.flat = ops, ranks, state.flat_grads
        self.chunks = chunks_of(self.flat.size, ranks.rank, ranks.size)
        self.more_sums: list = []  # flat arrays for the subtrees of this rank, but the first
        self.for_mpi = ForMPI(ops.device, self.flat)

    def tree(self, n_shards, *, is_first, is_last):
        """The sum for a batch of so many shards; after the last, the ranks exchange their sums."""
        size, rank = self.ranks.size, self.ranks.rank
        shards_of = [share_of(range(n_shards), i, size) for i in range(size)]
        if is_first and is_last:
            n_leaves = n_shards
            subtrees_of = [subtrees(0, n_shards, shards) for shards in shards_of]
            roots = subtrees_of[rank]
        else:  # what a rank has added up, of several batches, is a leaf
            n_leaves = size
            subtrees_of = [[(i, i + 1)] for i in range(size)]
            own = shards_of[rank]
            roots = [(own.start, own.stop)] if own else []
        if not roots and is_first:  # this rank has no row of the first batch
            self.flat[...] = 0
        while len(self.more_sums) < len(roots) - 1:
            self.more_sums.append(np.empty_like(self.flat))
        sums = [self.flat, *self.more_sums]
        sending = None
        if is_last:
            sending = Sending(self, subtrees_of, sums[: len(subtrees_of[rank])], n_leaves)
        sum_of = dict(zip(roots, sums, strict=False))
        return GradientTree(self.state.places, sum_of, is_first, sending)

    def compute(self, shards, gradients, params, options):
        """Add up the gradients as ``OverShards`` does, and exchange the sums with other ranks."""
        sending = gradients.sending
        try:
            results = super().compute(shards, gradients, params, options)
            if sending is not None:
                sending.finish()
        finally:
            if sending is not None:
                sending.messenger.end()  # leave no thread behind
        return [(float(loss), n_targets) for loss, n_targets in results]  # which JSON can hold


class Sending:
    """The exchange of the gradients of one batch, or of the last of several.

    ``subtrees`` are lists of those of each rank, of a tree with ``n_leaves``; ``flat_sums`` are
    flat arrays with the sums of this rank's. (On a GPU, which has one shard, there is one at most.)
    """

    def __init__(self, exchange, subtrees, flat_sums, n_leaves):
        self.exchange, self.flat_sums = exchange, flat_sums
        self.subtrees, self.n_leaves = subtrees, n_leaves
        self.messenger = Messenger(exchange.ranks)
        self.frontier = exchange.flat.size  # everything from the frontier on is complete
        self.waiting: dict = {}  # {end: start} of what is complete before the frontier
        self.under_way: list = []  # what ``_exchanged`` has returned for each chunk

    def complete(self, place):
        """Send what is complete, and let it go on while other gradients are computed."""
        with self.messenger.lock:
            self.waiting[place.stop] = place.start
            while self.frontier in self.waiting:
                self.frontier = self.waiting.pop(self.frontier)
            self._send()

    def finish(self):
        """Exchange what is not under way yet, and wait for the sums over all ranks."""
        self.messenger.end()
        self.frontier = 0
        self._send()
        flat, device = self.exchange.flat, self.exchange.ops.device
        for chunk, (requests, sums) in zip(self.exchange.chunks, self.under_way, strict=False):
            self.exchange.ranks.wait(*requests)
            if self.exchange.for_mpi.is_direct:
                tree_sum(sums, 0, self.n_leaves, out=flat[chunk.own])
            else:
                flat[chunk.own] = device.asarray(tree_sum(sums, 0, self.n_leaves))
            sums.clear()  # frees what was received

    def _send(self):
        """Begin to exchange the chunks that are complete."""
        for chunk in self.exchange.chunks[len(self.under_way) :]:
            if chunk.place.start < self.frontier:
                break
            requests, sums = self._exchanged(chunk)
            self.under_way.append((requests, sums))
            if self.frontier > 0:  # the backward pass goes on
                self.messenger.deliver(requests)

    def _exchanged(self, chunk):
        """Begin to exchange a chunk; return MPI's requests, and {subtree: own piece}."""
        ranks, for_mpi = self.exchange.ranks, self.exchange.for_mpi
        comm, me = ranks.comm, ranks.rank
        others = [rank for rank in range(ranks.size) if rank != me]
        start = chunk.place.start
        inside = [slice(piece.start - start, piece.stop - start) for piece in chunk.pieces]
        ours = [for_mpi.sent(chunk.place, total) for total in self.flat_sums]
        sums = {}
        for total, subtree in zip(ours, self.subtrees[me], strict=True):
            sums[subtree] = total[inside[me]]
        requests = []
        for rank in others:
            for subtree in self.subtrees[rank]:
                sums[subtree] = np.empty_like(for_mpi.buffer, shape=chunk.counts[me])
                requests.append(comm.Irecv(sums[subtree], source=rank))
        for rank in others:
            requests += [comm.Isend(total[inside[rank]], dest=rank) for total in ours]
        return requests, sums


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
