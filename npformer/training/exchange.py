"""The sum of the gradients of all ranks, computed while the backward pass goes on.

The flat gradient is cut into chunks, from its end, where the backward pass begins, and each chunk into one piece for
each rank. As soon as a chunk is complete, the ranks begin to send each other its pieces, for which a thread calls MPI
(``Messenger``), and each adds up what it receives for its own piece, which it then updates (``DividedOptimizer``).

MPI's reduce-scatter adds in an order that depends on the number of ranks; the sum of ``tree_sum`` has the same bits on
any number of them. If several batches make one step, each rank adds up its part of all of them first.
"""

from functools import partial
from itertools import chain

import numpy as np

from npformer.reference import derive_key
from npformer.runtime.messenger import Messenger
from npformer.runtime.ranks import share_of
from npformer.training.divided_optimizer import ForMPI, chunks_of
from npformer.training.gradient_tree import GradientTree, subtrees, tree_sum
from npformer.training.shards import for_shards


class OverRanks:
    """A ``loss_and_grad`` whose batches are divided among the threads of all ranks, which add up their gradients.

    Each rank has the sum of the numbers that it updates, in ``state.flat_grads``. If the model's ``loss_and_grad``
    takes ``ready``, gradients are sent while others are computed.
    """

    def __init__(self, loss_and_grad, sharding, state, ops, ranks):
        self.sharding, self.state, self.flat = sharding, state, state.flat_grads
        self.ops, self.ranks = ops, ranks
        self.gradients_of = for_shards(loss_and_grad)
        self.chunks = chunks_of(self.flat.size, ranks.rank, ranks.size)
        self.more_sums: list = []  # flat arrays for the subtrees of this rank, but the first
        self.for_mpi = ForMPI(ops.device, self.flat)

    def __call__(self, params, *batch, dropout_key=None, **options):
        """The loss and the gradients of a batch, of all ranks together, and the number of targets of this rank."""
        results = self._results(params, batch, dropout_key, options, is_first=True, is_last=True)
        return self._loss([results]), self.state.grads, sum(n for _, n in results)

    def of_batches(self, params, *batches, dropout_key=None, **options):
        """The same of several batches, as ``over_batches`` would add them up; each rank first adds up its part."""
        last = len(batches) - 1
        results = []  # of each batch
        for i, batch in enumerate(batches):
            key = derive_key(dropout_key, i)
            results.append(self._results(params, batch, key, options, is_first=i == 0, is_last=i == last))
        return self._loss(results), self.state.grads, sum(n for of_batch in results for _, n in of_batch)

    def _loss(self, results):
        """The loss of all ranks, given the results of this one for each batch; it is added up batch by batch."""
        of_ranks = self.ranks.gather([[float(loss) for loss, _ in of_batch] for of_batch in results])
        of_batches = zip(*of_ranks, strict=True)
        return sum((sum(chain(*of_batch), np.float64(0)) for of_batch in of_batches), np.float64(0))

    def _results(self, params, batch, dropout_key, options, *, is_first, is_last):
        """Add up the gradients of a batch; return (loss, number of targets) of each shard of this rank."""
        shards = self.sharding.shards(batch, dropout_key)
        mine = self.ranks.my_share(shards)
        sums = self.tree(len(shards), is_first=is_first, is_last=is_last)
        work = partial(self.gradients_of, params, sums, options)
        try:
            if len(shards) == len(mine) == 1:  # its matrix products are divided among the threads, if they are large
                results = [work(mine[0])]
            else:
                results = self.ops.device.run_shards(work, mine)
            sums.check_complete()
            if sums.sending is not None:
                sums.sending.finish()
        finally:
            if sums.sending is not None:
                sums.sending.messenger.end()  # leave no thread behind
        return results

    def tree(self, n_shards, *, is_first, is_last):
        """The sum for a batch of this number of shards, on all ranks together.

        The first batch of a step overwrites what there is; at the last one, the ranks exchange their sums.
        """
        size, rank = self.ranks.size, self.ranks.rank
        owned = [share_of(range(n_shards), i, size) for i in range(size)]
        mine = owned[rank]
        if is_first and is_last:
            of_ranks = [subtrees(0, n_shards, of_rank) for of_rank in owned]
            sums = of_ranks[rank]
        else:  # of several batches, each rank first adds up its part
            n_shards, of_ranks = size, [[(i, i + 1)] for i in range(size)]
            sums = [(mine.start, mine.stop)] if mine else []
        while len(self.more_sums) < len(sums) - 1:
            self.more_sums.append(np.empty_like(self.flat))
        if not mine and is_first:  # this rank has no row of the first batch
            self.flat[...] = 0
        flat_sums = [self.flat, *self.more_sums]
        sending = Sending(self, of_ranks, flat_sums[: len(of_ranks[rank])], n_shards) if is_last else None
        return GradientTree(self.state.places, dict(zip(sums, flat_sums, strict=False)), is_first, sending)


class Sending:
    """The exchange of the gradients of one batch, or of the last of several.

    ``subtrees`` are lists of those of each rank, of a tree with ``n_leaves``; ``flat_sums`` are flat arrays with the
    sums of this rank's. (On a GPU, which has one shard, there is one at most.)
    """

    def __init__(self, exchange, subtrees, flat_sums, n_leaves):
        self.exchange, self.subtrees, self.flat_sums, self.n_leaves = exchange, subtrees, flat_sums, n_leaves
        self.messenger = Messenger(exchange.ranks)
        self.waiting: dict = {}  # {end: start} of the parameters whose gradients are complete, but not those behind
        self.frontier = exchange.flat.size  # everything from the frontier on is complete
        self.under_way: list = []  # what ``_exchanged`` returned for the chunks that the ranks are exchanging

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
            self.under_way.append(self._exchanged(chunk))
            if self.frontier > 0:  # the backward pass goes on
                self.messenger.deliver(self.under_way[-1][0])

    def _exchanged(self, chunk):
        """Begin to exchange a chunk; return MPI's requests, and {subtree: this rank's piece} for ``tree_sum``."""
        ranks, for_mpi = self.exchange.ranks, self.exchange.for_mpi
        comm, me = ranks.comm, ranks.rank
        others = [rank for rank in range(ranks.size) if rank != me]
        ours = [for_mpi.sent(chunk.place, total) for total in self.flat_sums]
        there = [slice(piece.start - chunk.place.start, piece.stop - chunk.place.start) for piece in chunk.pieces]
        theirs = [(rank, subtree) for rank in others for subtree in self.subtrees[rank]]
        received = np.empty_like(for_mpi.buffer, shape=(len(theirs), chunk.own.stop - chunk.own.start))
        requests = [comm.Irecv(x, source=rank) for x, (rank, _) in zip(received, theirs, strict=True)]
        requests += [comm.Isend(total[there[rank]], dest=rank) for rank in others for total in ours]
        sums = {subtree: x for x, (_, subtree) in zip(received, theirs, strict=True)}
        sums |= {subtree: total[there[me]] for total, subtree in zip(ours, self.subtrees[me], strict=True)}
        return requests, sums
