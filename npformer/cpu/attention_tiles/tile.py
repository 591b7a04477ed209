"""Where a tile is, and which of its keys a query sees."""

from typing import NamedTuple

from npformer.cpu.jit import inlined
from npformer.cpu.padded import TILE_ROWS

# The most per tile. A column of it (a line per query) is read from the first-level cache, the whole
# of it (96 KB of float32 scores) and what it is multiplied by from the second.
QUERIES, KEYS = 96, 256
assert QUERIES % TILE_ROWS == 0  # so that a tile of queries begins with a whole tile of rows


class Tile(NamedTuple):
    """The place of a tile in the scores (B, H, T, S): some queries and keys of one head, and the
    first of them.
    """

    b: int
    h: int
    t: int
    s: int
    n_queries: int
    n_keys: int
    H: int
    T: int
    S: int


@inlined
def n_visible(t, T, S, causal):
    """The number of keys, from the first on, that query t may see under a causal mask."""
    return min(S, max(0, t + 1 + S - T)) if causal else S


@inlined
def n_visible_of(tile, i, causal):
    """The same, of the keys of a tile and its query i."""
    return min(tile.n_keys, max(0, n_visible(tile.t + i, tile.T, tile.S, causal) - tile.s))


@inlined
def part_of(x, tile, i, n):
    """The first n entries of the row of a mask or bias (1 or B, 1 or H, 1 or T, S) for query i of a
    tile.
    """
    b = tile.b if len(x) > 1 else 0
    h = tile.h if x.shape[1] > 1 else 0
    t = tile.t + i if x.shape[2] > 1 else 0
    return x[b, h, t, tile.s : tile.s + n]


@inlined
def is_hidden(mask, tile):
    """Whether a mask hides a tile. A mask with one row for all queries is not read."""
    if mask.shape[2] == 1:
        return False
    # The last keys are seen by the last queries, if by any.
    for i in range(tile.n_queries - 1, -1, -1):
        row = part_of(mask, tile, i, tile.n_keys)
        for s in range(len(row)):
            if row[s]:
                return False
    return True


@inlined
def start_of(tile, i):
    """The position of the first score of query i of a tile among all scores, by which dropout
    draws.
    """
    return ((tile.b * tile.H + tile.h) * tile.T + tile.t + i) * tile.S + tile.s
