"""An optimizer whose state is divided among ranks: each updates the parameters of which it has the moments.

It is the first stage of ZeRO (Rajbhandari et al. 2020). The flat arrays are cut into chunks, and each chunk into one
piece for each rank. The ranks exchange the parameters that they have updated (all-gather).
"""

import os
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from npformer.arrays import on_host
from npformer.reference.math.update import BLOCK, norm_of
from npformer.training.flat_optimizer import FlatOptimizer

GPU_AWARE = "NPFORMER_GPU_AWARE_MPI"  # set in the environment if MPI takes arrays of the GPU
SMALLEST, LARGEST, WANTED = 2**16, 2**22, 16  # numbers of a chunk, and chunks, unless they would be smaller or larger


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
    """Cut n numbers into chunks, the last one first. Every piece begins with a block of ``norms_of_blocks``.

    >>> for chunk in chunks_of(100_000, rank=1, size=2):
    ...     print(chunk.place, chunk.own, chunk.state)
    slice(36864, 100000, None) slice(69632, 100000, None) slice(0, 30368, None)
    slice(0, 36864, None) slice(20480, 36864, None) slice(30368, 46752, None)
    """
    length = min(max(-(-n // WANTED), SMALLEST), LARGEST)
    chunks: list[Chunk] = []
    stop, done = n, 0
    while stop > 0:
        start = _in_blocks(max(0, stop - length))
        edges = [min(start + _in_blocks((stop - start) * i // size), stop) for i in range(size + 1)]
        pieces = [slice(*pair) for pair in pairwise(edges)]
        own = pieces[rank]
        chunks.append(Chunk(pieces, own, slice(done, done + own.stop - own.start)))
        stop, done = start, chunks[-1].state.stop
    return chunks


def _in_blocks(n):
    """The smallest multiple of ``BLOCK`` that is not below n."""
    return -(-n // BLOCK) * BLOCK


class DividedOptimizer(FlatOptimizer):
    """A ``FlatOptimizer`` of several ranks: each has the moments of some parameters, and updates these."""

    def __init__(self, optimizer, ops, state, frozen, ranks):
        super().__init__(optimizer, ops, state, frozen)
        self.ranks = ranks
        self.chunks = chunks_of(state.flat_params.size, ranks.rank, ranks.size)
        self.pieces = [own for chunk in self.chunks for own in _own_pieces(chunk, self.pieces)]
        self.for_mpi = ForMPI(ops.device, state.flat_params)

    def norm(self, flat_grads):
        """The norm of the gradient of all ranks."""
        for place in self.frozen:
            flat_grads[place] = 0
        norms = [on_host(self.ops.norms_of_blocks(flat_grads[chunk.own])) for chunk in self.chunks]
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
        buffers = [[params.buffer[chunk.place], chunk.counts] for chunk in self.chunks]
        self.ranks.wait(*(self.ranks.comm.Iallgatherv(self.ranks.mpi.IN_PLACE, buffer) for buffer in buffers))
        params.received()

    def own(self, flat):
        """Copy this rank's pieces of a flat array into one array, as the moments have them."""
        return np.concatenate([flat[chunk.own] for chunk in self.chunks])

    def whole(self, own):
        """All ranks have to call this. On ranks other than 0 the result is empty."""
        size = self.chunks[0].place.stop
        flat, own = np.empty(size if self.ranks.is_first else 0, own.dtype), on_host(own)
        for chunk in self.chunks:
            place = [flat[chunk.place], chunk.counts] if self.ranks.is_first else None
            self.ranks.wait(self.ranks.comm.Igatherv(own[chunk.state], place))
        return flat


def _own_pieces(chunk, pieces):
    """The parts of pieces that lie in this rank's piece of a chunk."""
    before = chunk.own.start - chunk.state.start
    own = []
    for piece in pieces:
        start = max(chunk.own.start, piece.place.start)
        stop = min(chunk.own.stop, piece.place.stop)
        if start < stop:
            state = slice(start - before, stop - before)
            own.append(piece._replace(place=slice(start, stop), state=state))
    return own


class ForMPI:
    """A flat array as MPI reads and writes it: itself, or a copy in host memory if MPI cannot reach those of a GPU."""

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
