"""The parts of a flat array that ranks exchange one after another."""

from typing import NamedTuple

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
