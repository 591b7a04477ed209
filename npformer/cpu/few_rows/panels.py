"""A few rows times a large matrix, which BLAS would copy first. That pays off only for many rows.

A tile of the result is computed while columns of the matrix are read; the next rows read the same
columns again, then from the cache. The rows are copied to panels first, where the numbers that a
step of the loop needs lie side by side. The columns of a matrix that is used often can be copied to
panels, too: for 8 to 32 rows this is 1.5 times as fast as BLAS or more.
"""

import numpy as np

from npformer.cpu.jit import inlined
from npformer.cpu.llvm import BITS
from npformer.cpu.register_tile import register_tile_of
from npformer.cpu.scalar import like
from npformer.runtime.memory import empty_parts
from npformer.runtime.threads import in_parallel

# Vectors per row of a tile: there are 32 registers of 512 bits, but perhaps 16 others.
WIDTH = 4 if BITS == 512 else 2
COLUMNS = WIDTH * BITS // 32  # of a tile in float32; half as many in float64
# Without registers of 512 bits, a tile is as wide as a cache line (64 bytes), and the processor
# does not foresee that the next line is in the next row: the tile fetches the line of the same row
# that is this many tiles ahead; in panels, all row tiles together fetch the next panel.
AHEAD = 0 if BITS == 512 else 2
TILED = 64 if BITS == 512 else 12  # rows: BLAS is faster for more, without panels
# Whether decoding copies weights to panels: not measured where tiles are four lines wide.
COPIED = BITS < 512


@inlined
def rows_in_panels(a):
    """Panels (panels, depth · rows) of six rows, or of four rows if that makes no more panels.

    Where the last panel has a place left, it repeats the last row.
    """
    m, depth = a.shape
    height = 6
    if (m + 3) // 4 == (m + 5) // 6:  # tiles of four rows read b equally often, and compute less
        height = 4
    panels = np.empty(((m + height - 1) // height, depth * height), a.dtype)
    for i in range(len(panels)):
        if height == 4:  # a constant, so that LLVM unrolls the loop
            _copy_rows(a, i * 4, 4, panels[i])
        else:
            _copy_rows(a, i * 6, 6, panels[i])
    return panels


@inlined
def _copy_rows(a, first, height, panel):
    for k in range(a.shape[1]):
        for r in range(height):
            panel[k * height + r] = a[min(first + r, len(a) - 1), k]


@inlined
def multiply_tiles(rows, b, out, first, last):
    """out[:, first:last] = a b[:, first:last], for at least COLUMNS columns or none.

    ``rows`` has the rows of a in panels; the rows of b and of out are contiguous.
    """
    columns = WIDTH * BITS // (8 * b.itemsize)
    for start in range(first, last, columns):
        j = min(start, last - columns)  # the last tile may compute some columns again
        n = b.shape[1]
        for i in range(len(rows)):
            _multiply_tile(rows[i], b, (j, n), (AHEAD * columns, n), out, len(b), i, j)


@inlined
def multiply_panels(rows, panels, out, depth, n, first, last):
    """``multiply_tiles`` for b (depth, n) in panels; first is a multiple of 64."""
    columns = WIDTH * BITS // (8 * panels.itemsize)
    fetch_step = columns // len(rows)
    for start in range(first, last, columns):
        layout = start * depth, columns
        j = min(start, n - columns)
        for i in range(len(rows)):  # meanwhile, each fetches a part of the next panel
            fetched = (columns + i * fetch_step) * depth, fetch_step
            _multiply_tile(rows[i], panels, layout, fetched, out, depth, i, j)


@inlined
def _multiply_tile(panel, b, b_layout, fetched, out, depth, i, j):
    """Tile i of out, from column j on."""
    one = like(panel[0], 1)
    adds = False
    if len(panel) == 4 * depth:
        _tile_4(panel, b, out, (0, 1, 4), b_layout, fetched, one, depth, 4 * i, j, adds)
    else:
        _tile_6(panel, b, out, (0, 1, 6), b_layout, fetched, one, depth, 6 * i, j, adds)


def columns_in_panels(matrices):
    """A vector for each matrix: panels of its columns, one after another.

    All panels are equally wide: the last one has the last columns, of which some may be in the one
    before it, too. The vector is empty if the matrix has too few columns for a panel. All vectors
    are parts of one array, as large arrays lie in large pages of memory.
    """
    columns = WIDTH * BITS // (8 * matrices[0].itemsize)

    def size_of(w):
        depth, n = w.shape
        return -(-n // columns) * columns * depth if n >= columns else 0

    def copy(i):
        if parts[i].size:
            depth = len(matrices[i])
            _copy_to_panels(matrices[i], parts[i].reshape(-1, depth, columns))

    parts = empty_parts(map(size_of, matrices), matrices[0].dtype)
    in_parallel(copy, range(len(matrices)))
    return parts


def _copy_to_panels(w, panels):
    """Copy columns of w to each panel; the last one has the last columns."""
    depth, n = w.shape
    n_panels, _, columns = panels.shape
    whole = n // columns
    panels[:whole] = w[:, : whole * columns].reshape(depth, whole, columns).transpose(1, 0, 2)
    panels[-1] = w[:, -columns:]


_tile_4 = register_tile_of(4, WIDTH, fetches=AHEAD > 0)
_tile_6 = register_tile_of(6, WIDTH, fetches=AHEAD > 0)
