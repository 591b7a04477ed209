"""The sum of the gradients of all ranks, computed while the backward pass goes on, and the optimizer's state divided.

The flat gradient is cut into chunks, from its end, where the backward pass begins. As soon as a chunk is complete, all
ranks begin to add it up (reduce-scatter): each rank receives the sum of its own piece of the chunk. It updates these
parameters, for which it alone has the optimizer's state (the first stage of ZeRO, Rajbhandari et al. 2020), and the
ranks exchange the new parameters (all-gather).
"""

import inspect
import math
import os
import threading
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.training.gradient_sum import GradientSum, add_up
from npformer.training.parts import Piece

GPU_AWARE = "NPFORMER_GPU_AWARE_MPI"  # set in the environment if MPI takes arrays of the GPU
SMALLEST, LARGEST, WANTED = 2**16, 2**22, 16  # numbers of a chunk, and chunks, unless they would be smaller or larger


class Chunk(NamedTuple):
    """A part of the flat arrays; each rank owns a piece of it."""

    place: slice
    counts: list[int]  # numbers that each rank owns
    own: slice  # this rank's piece, in the flat arrays
    state: slice  # the same, in the optimizer's state of this rank


def chunks_of(n, rank, size):
    """Cut n numbers into chunks, the last one first.

    Examples
    --------
    >>> for chunk in chunks_of(100_000, rank=1, size=2):
    ...     print(chunk.place, chunk.own, chunk.state)
    slice(34464, 100000, None) slice(67232, 100000, None) slice(0, 32768, None)
    slice(0, 34464, None) slice(17232, 34464, None) slice(32768, 50000, None)
    """
    length = min(max(n // WANTED, SMALLEST), LARGEST)
    chunks: list[Chunk] = []
    stop, done = n, 0
    while stop > 0:
        start = max(0, stop - length)
        edges = [start + (stop - start) * i // size for i in range(size + 1)]
        counts = [after - before for before, after in zip(edges, edges[1:], strict=False)]
        own = slice(edges[rank], edges[rank + 1])
        chunks.append(Chunk(slice(start, stop), counts, own, slice(done, done + counts[rank])))
        stop, done = start, done + counts[rank]
    return chunks


class Exchange(GradientSum):
    """Adds up the gradients of a step on all ranks, while they are computed.

    Parameters
    ----------
    ranks : Ranks
    model
        If its ``loss_and_grad`` takes ``ready``, gradients are sent while others are computed.
    ops, flat_params, flat_grads, grads, parts
        As for ``GradientSum``.
    """

    def __init__(self, ranks, model, ops, flat_params, flat_grads, grads, parts):
        self.ranks = ranks
        self.chunks = chunks_of(flat_grads.size, ranks.rank, ranks.size)
        super().__init__(ops, flat_params, flat_grads, grads, parts)
        leaves = tree.leaves(grads)
        ends = accumulate(x.size for _, x in leaves)
        self.places = {path: (end - x.size, end, x) for (path, x), end in zip(leaves, ends, strict=True)}
        self.reports = "ready" in inspect.signature(model.loss_and_grad).parameters
        self.lock = threading.Lock()
        # What MPI reads and writes: the arrays themselves, or copies in host memory if it cannot reach those of a GPU.
        is_on_host = isinstance(flat_grads, np.ndarray) or os.environ.get(GPU_AWARE)
        self.sent_params, self.sent_grads = (
            x if is_on_host else np.empty(x.shape, x.dtype) for x in (flat_params, flat_grads)
        )

    def _pieces(self, parts):
        pieces = []
        for chunk in self.chunks:
            for part in parts:
                start, stop = max(chunk.own.start, part.place.start), min(chunk.own.stop, part.place.stop)
                if start < stop:
                    place = slice(start, stop)
                    grad = shifted(place, chunk.place.start - chunk.own.start)  # reduce-scatter writes to the start
                    state = shifted(place, chunk.state.start - chunk.own.start)
                    pieces.append(Piece(place, grad, state, part.frozen, part.decay))
        return pieces

    def begin(self, n_shards, *, is_first, is_last):
        """Prepare for the gradients of a batch; with ``ready``, a shard gives them while it computes the others."""
        self.is_first, self.is_last = is_first, is_last
        self.given = {path: [None] * n_shards for path in self.places}
        self.complete: dict = {}  # {end: start} of the parameters whose gradients are complete, but not those behind
        self.frontier, self.requests = self.flat_grads.size, []  # everything from the frontier on is complete
        return [{"ready": partial(self._ready, i)} if self.reports else {} for i in range(n_shards)]

    def add(self, gradients):
        """Add what was not given with ``ready``, and wait for the sums over all ranks."""
        for i, grads in enumerate(gradients):  # what was not reported
            self._ready(i, "", grads)
        if not gradients and self.is_first:  # this rank has no row of the batch
            self.flat_grads[...] = 0
        self.frontier = 0
        self._send()
        self.ranks.wait(*self.requests)
        if self.is_last and self.sent_grads is not self.flat_grads:
            for piece in self.pieces:
                self.flat_grads[piece.grad] = self.ops.asarray(self.sent_grads[piece.grad])

    def _ready(self, shard, path, grads):
        """Take the gradients below a path from a shard, and send what is complete."""
        with self.lock:
            for leaf, grad in tree.leaves(grads, path):
                given = self.given[leaf]
                if given is None or given[shard] is not None:
                    continue
                given[shard] = grad
                if all(x is not None for x in given):
                    start, end, total = self.places[leaf]
                    add_up(self.is_first, total, *given)
                    self.given[leaf], self.complete[end] = None, start
            while self.frontier in self.complete:
                self.frontier = self.complete.pop(self.frontier)
            self._send()

    def _send(self):
        """Begin to add up the chunks that are complete, and go on with those before."""
        for chunk in self.chunks[len(self.requests) :] if self.is_last else ():
            if chunk.place.start < self.frontier:
                break
            numbers = self.sent_grads[chunk.place]
            if self.sent_grads is not self.flat_grads:
                numbers[...] = on_host(self.flat_grads[chunk.place])
            self.requests.append(self.ranks.comm.Ireduce_scatter(self.ranks.mpi.IN_PLACE, numbers, chunk.counts))
        self.ranks.mpi.Request.Testall(self.requests)

    def totals(self, loss):
        """The loss of all ranks, and the norm of the sum of their gradients."""
        norm = math.hypot(*(self.ops.global_norm(self.flat_grads[piece.grad]) for piece in self.pieces))
        losses, norms = np.transpose(self.ranks.gather_arrays(np.array([float(loss), norm])))
        return sum(losses.astype(self.flat_grads.dtype)), math.hypot(*norms)

    def not_finite(self):
        """The paths of parameters of this rank whose gradient holds NaN or inf."""
        bad = [
            piece.place.start + np.flatnonzero(~np.isfinite(on_host(self.flat_grads[piece.grad])))
            for piece in self.pieces
        ]
        ends = [end for _, end, _ in self.places.values()]
        numbers = np.unique(np.searchsorted(ends, np.concatenate(bad), side="right"))
        return [list(self.places)[i] for i in numbers]

    def share_parameters(self):
        """Send the parameters that this rank has updated, and receive the others."""
        in_place, comm = self.ranks.mpi.IN_PLACE, self.ranks.comm
        is_copied = self.sent_params is not self.flat_params
        for chunk in self.chunks if is_copied else ():
            self.sent_params[chunk.own] = on_host(self.flat_params[chunk.own])
        places = [[self.sent_params[chunk.place], chunk.counts] for chunk in self.chunks]
        self.ranks.wait(*(comm.Iallgatherv(in_place, place) for place in places))
        if is_copied:
            self.flat_params[...] = self.ops.asarray(self.sent_params)

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


def shifted(place, by):
    """A slice of the same length elsewhere."""
    return slice(place.start + by, place.stop + by)
