"""The parts of a flat array that ranks exchange one after another."""

from itertools import pairwise
from typing import NamedTuple

from npformer.reference.math.update import BLOCK

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
