"""A flat array that ranks divide: its chunks, the piece of each rank, and how MPI reads it."""

import os
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from npformer.arrays import on_host

GPU_AWARE = "NPFORMER_GPU_AWARE_MPI"  # set in the environment if MPI takes arrays of the GPU
SMALLEST, LARGEST = 2**16, 2**22  # numbers of a chunk
WANTED = 16  # chunks, unless they would be smaller or larger


class Chunk(NamedTuple):
    """A part of a flat array; each rank owns a piece of it."""

    pieces: list[slice]  # of each rank, in the flat array
    own: slice  # that of this rank
    joined: slice  # the same, in the pieces of this rank joined to one array

    @property
    def place(self):
        """The whole part, in the flat array."""
        return slice(self.pieces[0].start, self.pieces[-1].stop)

    @property
    def counts(self):
        """How many numbers each rank owns."""
        return [piece.stop - piece.start for piece in self.pieces]


def chunks_of(n, rank, size, block):
    """Cut n numbers into chunks, the last one first; every piece begins with a block.

    >>> for chunk in chunks_of(100_000, rank=1, size=2, block=2**12):
    ...     print(chunk.place, chunk.own, chunk.joined)
    slice(36864, 100000, None) slice(69632, 100000, None) slice(0, 30368, None)
    slice(0, 36864, None) slice(20480, 36864, None) slice(30368, 46752, None)
    """

    def in_blocks(n):
        return -(-n // block) * block

    length = min(max(-(-n // WANTED), SMALLEST), LARGEST)
    chunks: list[Chunk] = []
    stop = n
    n_owned = 0
    while stop > 0:
        start = in_blocks(max(0, stop - length))
        inner = [start + in_blocks((stop - start) * i // size) for i in range(1, size)]
        edges = [start, *(min(edge, stop) for edge in inner), stop]
        pieces = [slice(*pair) for pair in pairwise(edges)]
        own = pieces[rank]
        joined = slice(n_owned, n_owned + own.stop - own.start)
        chunks.append(Chunk(pieces, own, joined))
        stop = start
        n_owned = joined.stop
    return chunks


class DividedArray:
    """A flat array that ranks divide into chunks, and that MPI reads and writes.

    MPI uses ``buffer``: the array itself, or a copy in host memory if MPI cannot reach the memory
    of a GPU.
    """

    def __init__(self, device, flat, chunks):
        self.device, self.flat, self.chunks = device, flat, chunks
        self.is_direct = isinstance(flat, np.ndarray) or bool(os.environ.get(GPU_AWARE))
        self.buffer = flat if self.is_direct else device.host_memory(flat.size, flat.dtype)

    def to_mpi(self, place, flat):
        """Let MPI read a place of this array, or of another one of its size; return what it reads.

        Nothing else of what this returns may be read.
        """
        if self.is_direct:
            self.device.wait()
            return flat
        on_host(flat[place], out=self.buffer[place])
        return self.buffer

    def from_mpi(self, place=slice(None)):
        """Take what MPI has written into the buffer at a place."""
        if not self.is_direct:
            self.flat[place] = self.device.asarray(self.buffer[place])
