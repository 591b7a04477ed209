"""The sum of the gradients of all ranks, computed while the backward pass goes on, and the optimizer's state divided.

The flat gradient is cut into chunks, from its end, where the backward pass begins, and each chunk into one piece for
each rank. As soon as a chunk is complete, the ranks begin to send each other its pieces, and each adds up what it
receives for its own piece. It updates these parameters, for which it alone has the optimizer's state (the first stage
of ZeRO, Rajbhandari et al. 2020), and the ranks exchange the new parameters (all-gather).

MPI's reduce-scatter adds in an order that depends on the number of ranks; the sum of ``tree_sum`` has the same bits on
any number of them. If several batches make one step, each rank adds up its part of all of them first.
"""

import inspect
import os
import threading
from functools import partial
from itertools import accumulate

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.reference.math.update import norm_of
from npformer.runtime.ranks import share_of
from npformer.training.chunks import chunks_of
from npformer.training.gradient_sum import GradientSum, add_up
from npformer.training.tree_sum import subtrees, tree_sum

GPU_AWARE = "NPFORMER_GPU_AWARE_MPI"  # set in the environment if MPI takes arrays of the GPU


class Exchange(GradientSum):
    """Adds up the gradients of a step on all ranks.

    If the model's ``loss_and_grad`` takes ``ready``, gradients are sent while others are computed.
    """

    def __init__(self, ranks, model, ops, flat_params, flat_grads, grads, pieces):
        self.ranks = ranks
        self.chunks = chunks_of(flat_grads.size, ranks.rank, ranks.size)
        super().__init__(ops, flat_params, flat_grads, grads, self._own_part(pieces))
        leaves = tree.leaves(grads)
        ends = accumulate(x.size for _, x in leaves)
        self.places = {path: (slice(end - x.size, end), x.shape) for (path, x), end in zip(leaves, ends, strict=True)}
        self.reports = "ready" in inspect.signature(model.loss_and_grad).parameters
        self.lock = threading.Lock()
        self.flat_sums = [flat_grads]  # of each subtree of this rank
        # What MPI reads and writes: the arrays themselves, or copies in host memory if it cannot reach those of a GPU.
        self.is_direct = isinstance(flat_grads, np.ndarray) or bool(os.environ.get(GPU_AWARE))
        self.sent_params, self.sent_grads = (
            x if self.is_direct else ops.device.host_memory(x.size, x.dtype) for x in (flat_params, flat_grads)
        )

    def _own_part(self, pieces):
        own = []
        for chunk in self.chunks:
            before = chunk.own.start - chunk.state.start
            for piece in pieces:
                start, stop = max(chunk.own.start, piece.place.start), min(chunk.own.stop, piece.place.stop)
                if start < stop:
                    place, state = slice(start, stop), slice(start - before, stop - before)
                    own.append(piece._replace(place=place, state=state))
        return own

    def begin(self, shards, *, is_first, is_last):
        """Prepare for the gradients of a batch; with ``ready``, a shard gives them while it computes the others."""
        self.is_first, self.is_last = is_first, is_last
        size, rank = self.ranks.size, self.ranks.rank
        self.n_leaves = len(shards)
        owned = [share_of(range(len(shards)), i, size) for i in range(size)]
        mine = owned[rank]
        if is_first and is_last:
            self.subtrees = [subtrees(0, len(shards), of_rank) for of_rank in owned]
            self.groups = [slice(start - mine.start, stop - mine.start) for start, stop in self.subtrees[rank]]
        else:  # of several batches, each rank first adds up its part
            self.n_leaves, self.subtrees, self.groups = size, [[(i, i + 1)] for i in range(size)], [slice(None)]
        while len(self.flat_sums) < len(self.groups):
            self.flat_sums.append(np.empty_like(self.flat_grads))
        self.given = {path: [None] * len(mine) for path in self.places}
        self.complete: dict = {}  # {end: start} of the parameters whose gradients are complete, but not those behind
        self.frontier = self.flat_grads.size  # everything from the frontier on is complete
        self.under_way: list = []  # what ``_exchanged`` returned for the chunks that the ranks are exchanging
        options = [{"ready": partial(self._ready, i)} if self.reports else {} for i in range(len(mine))]
        return list(zip([shards[i] for i in mine], options, strict=True))

    def add(self, gradients):
        """Add what was not given with ``ready``, and wait for the sums over all ranks."""
        for i, grads in enumerate(gradients):  # what was not reported
            tree.check_like(grads, self.grads, dtypes=False)
            self._ready(i, "", grads)
        if not gradients and self.is_first:  # this rank has no row of the first of several batches
            self.flat_grads[...] = 0
        self.finish()

    def finish(self):
        """Exchange what is not under way yet, and wait for the sums over all ranks."""
        self.frontier = 0
        self._send()
        for chunk, (requests, sums) in zip(self.chunks, self.under_way, strict=False):
            self.ranks.wait(*requests)
            own = self.flat_grads[chunk.own]
            if self.is_direct:
                tree_sum(sums, 0, self.n_leaves, out=own)
            else:
                own[...] = self.ops.device.asarray(tree_sum(sums, 0, self.n_leaves))
            sums.clear()  # frees what was received

    def _ready(self, shard, path, grads):
        """Take the gradients below a path from a shard, and send what is complete."""
        with self.lock:
            for leaf, grad in tree.leaves(grads, path):
                given = self.given.get(leaf)
                if given is None or given[shard] is not None:  # ``add`` refuses paths that are not there
                    continue
                given[shard] = grad
                if all(x is not None for x in given):
                    place, shape = self.places[leaf]
                    for total, group in zip(self.flat_sums, self.groups, strict=False):
                        add_up(self.is_first, total[place].reshape(shape), *given[group])
                    self.given[leaf], self.complete[place.stop] = None, place.start
            while self.frontier in self.complete:
                self.frontier = self.complete.pop(self.frontier)
            self._send()

    def _send(self):
        """Begin to exchange the chunks that are complete, and go on with those before."""
        if not self.is_last:
            return
        for chunk in self.chunks[len(self.under_way) :]:
            if chunk.place.start < self.frontier:
                break
            self.under_way.append(self._exchanged(chunk))
        self.ranks.mpi.Request.Testall([request for requests, _ in self.under_way for request in requests])

    def _exchanged(self, chunk):
        """Begin to exchange a chunk; return MPI's requests, and {subtree: this rank's piece} for ``tree_sum``."""
        comm, me = self.ranks.comm, self.ranks.rank
        others = [rank for rank in range(self.ranks.size) if rank != me]
        flat_sums = self.flat_sums[: len(self.subtrees[me])]  # one at most on a GPU, which has one shard
        ours = [self._for_mpi(total, self.sent_grads, chunk.place) for total in flat_sums]
        there = [slice(piece.start - chunk.place.start, piece.stop - chunk.place.start) for piece in chunk.pieces]
        theirs = [(rank, subtree) for rank in others for subtree in self.subtrees[rank]]
        received = np.empty_like(self.sent_grads, shape=(len(theirs), chunk.own.stop - chunk.own.start))
        requests = [comm.Irecv(x, source=rank) for x, (rank, _) in zip(received, theirs, strict=True)]
        requests += [comm.Isend(total[there[rank]], dest=rank) for rank in others for total in ours]
        sums = {subtree: x for x, (_, subtree) in zip(received, theirs, strict=True)}
        sums |= {subtree: total[there[me]] for total, subtree in zip(ours, self.subtrees[me], strict=True)}
        return requests, sums

    def _for_mpi(self, flat, copy, place):
        """The numbers at a place of a flat array, where MPI can read them."""
        if self.is_direct:
            self.ops.device.wait()
            return flat[place]
        return on_host(flat[place], out=copy[place])

    def totals(self, losses):
        """The loss of all ranks, given those of this rank's shards, and the norm of the sum of their gradients."""
        norms = [on_host(self.ops.norms_of_blocks(self.flat_grads[chunk.own])) for chunk in self.chunks]
        losses = self.ranks.gather([[float(loss) for loss in of_batch] for of_batch in losses])
        in_order = [loss for of_batch in zip(*losses, strict=True) for of_rank in of_batch for loss in of_rank]
        return sum(in_order, np.float64(0)), norm_of(np.concatenate(self.ranks.gather_arrays(np.concatenate(norms))))

    def not_finite(self):
        """The paths of parameters of this rank whose gradient holds NaN or inf."""
        bad = [
            chunk.own.start + np.flatnonzero(~np.isfinite(on_host(self.flat_grads[chunk.own]))) for chunk in self.chunks
        ]
        ends = [place.stop for place, _ in self.places.values()]
        numbers = np.unique(np.searchsorted(ends, np.concatenate(bad), side="right"))
        return [list(self.places)[i] for i in numbers]

    def share_parameters(self):
        """Send the parameters that this rank has updated, and receive the others."""
        in_place, comm = self.ranks.mpi.IN_PLACE, self.ranks.comm
        for chunk in self.chunks:
            self._for_mpi(self.flat_params, self.sent_params, chunk.own)
        buffers = [[self.sent_params[chunk.place], chunk.counts] for chunk in self.chunks]
        self.ranks.wait(*(comm.Iallgatherv(in_place, buffer) for buffer in buffers))
        if not self.is_direct:
            self.flat_params[...] = self.ops.device.asarray(self.sent_params)

    def own(self, flat):
        """Copy this rank's pieces of a flat array into one array, as in the optimizer's state."""
        return np.concatenate([flat[chunk.own] for chunk in self.chunks])

    def whole(self, own):
        """All ranks have to call this. On ranks other than 0 the result is empty."""
        flat, own = np.empty(self.flat_grads.size if self.ranks.is_first else 0, own.dtype), on_host(own)
        for chunk in self.chunks:
            place = [flat[chunk.place], chunk.counts] if self.ranks.is_first else None
            self.ranks.wait(self.ranks.comm.Igatherv(own[chunk.state], place))
        return flat
