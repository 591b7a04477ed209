"""Products of matrices that are parts of larger ones, which a kernel keeps in the cache.

BLAS copies its matrices first, and writes zeros before it adds. Here they are read as they lie, the
left one by rows or by columns. On a Zen 3, 96 x 64 times 64 x 256 is computed at 95 GFLOP/s (BLAS:
80 to 87), 30 x 64 times 64 x 30 at 89 (50), 10 x 16 times 16 x 10 at 26 (15). A sum has few
products before it is added to others, so it rounds little.
"""

import math

import numba

from npformer.cpu.jit import compiled_once
from npformer.cpu.llvm import BITS
from npformer.cpu.register_tile import register_tile_of
from npformer.runtime.memory import LINE, empty_parts

WIDTH = 8 * LINE // BITS  # vectors of a tile, which has one line of columns
TILE_ROWS = 12 // WIDTH  # 12 sums stay in registers


def with_room(shapes, dtype):
    """Arrays (…, m, n) of zeros with room for whole tiles, parts of one array.

    Products of whole tiles also multiply what lies beyond the m rows and n columns. If that were
    whatever memory held before, it would often be subnormal numbers, with which processors of Intel
    take a hundred times as long.

    Rows have an odd number of lines, so that those of a column are in different sets of the cache.
    """
    columns = LINE // dtype.itemsize
    whole = []
    for *leading, m, n in shapes:
        # Also the columns are filled up, as a tile may have them as its rows.
        lines = -(-_whole_tiles(n) // columns) | 1
        whole.append((*leading, _whole_tiles(m), lines * columns))
    parts = empty_parts(map(math.prod, whole), dtype)
    for part in parts:
        part.fill(0)
    return tuple(part.reshape(shape) for part, shape in zip(parts, whole, strict=True))


def _whole_tiles(n_rows):
    return -(-n_rows // TILE_ROWS) * TILE_ROWS


def multiply_padded(a, b, out, sizes, scale, add):
    """out = scale a b, or out += scale a b if ``add``, for arrays ``with_room``.

    The sizes are (m, n, depth): m rows and n columns, which are sums of ``depth`` products.
    """
    m, n, depth = sizes
    product = a[:m, :depth] @ b[:depth, :n] * scale
    out[:m, :n] = out[:m, :n] + product if add else product


def multiply_columns(a, b, out, sizes, scale, add):
    """``multiply_padded`` for aᵀ in place of a."""
    multiply_padded(a.T, b, out, sizes, scale, add)


_tile = register_tile_of(TILE_ROWS, WIDTH, fetches=False)


def _loop(name, is_transposed):
    """The loop over tiles of both. It is compiled for each, so that LLVM knows which step of a's
    layout is 1.

    If it knows none, it computes the address of each number of a from the one before, and the
    processor waits for them: 138 GFLOP/s in place of 230 on a Zen 5.
    """

    def multiply(a, b, out, sizes, scale, add):
        m, n, depth = sizes
        columns = LINE // b.itemsize
        step = a.shape[1]
        no_line = (0, 0)
        for j in range(0, n, columns):
            for i in range(0, m, TILE_ROWS):
                layout = (i, 1, step) if is_transposed else (i * step, step, 1)
                _tile(a, b, out, layout, (j, b.shape[1]), no_line, scale, depth, i, j, add)

    # Kernels that other processes have compiled are linked by names. If both loops had one name, a
    # kernel from disk could get the loop of the other.
    multiply.__qualname__ = name
    return multiply


def _type_of_multiply(a, b, out, sizes, scale, add):
    three = numba.types.UniTuple(numba.int64, 3)
    return numba.void(a, b, out, three, b.dtype, numba.boolean)


# They need not be inlined: they cannot round differently.
_by_rows = _loop("multiply_padded", is_transposed=False)
_by_columns = _loop("multiply_columns", is_transposed=True)
compiled_once(multiply_padded, _by_rows, _type_of_multiply)
compiled_once(multiply_columns, _by_columns, _type_of_multiply)
