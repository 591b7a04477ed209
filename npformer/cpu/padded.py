"""Products of matrices that are parts of larger ones, which a kernel keeps in the cache.

BLAS copies its matrices first, and writes zeros before it adds. Here they are read as they lie, the
left one by rows or by columns. On a Zen 3, 96 x 64 times 64 x 256 is computed at 95 GFLOP/s (BLAS:
80 to 87), 30 x 64 times 64 x 30 at 89 (50), 10 x 16 times 16 x 10 at 26 (15). A sum has few
products before it is added to others, so it rounds little.
"""

import math

import numba
from numba.extending import lower_builtin, type_callable

from npformer.cpu.tile import BITS, tile_of
from npformer.runtime.memory import LINE, empty_parts

WIDTH = 8 * LINE // BITS  # vectors of a tile, which has one line of columns
ROWS = 12 // WIDTH  # 12 sums stay in registers


def with_room(shapes, dtype):
    """Arrays (…, m, n) with room for whole tiles, parts of one array; what lies there has no
    meaning.

    Rows have an odd number of lines, so that those of a column are in different sets of the cache.
    """
    columns = LINE // dtype.itemsize
    whole = []
    for *leading, m, n in shapes:
        # also the columns are filled up, as a tile may have them as its rows
        lines = -(-_whole_tiles(n) // columns) | 1
        whole.append((*leading, _whole_tiles(m), lines * columns))
    parts = empty_parts(map(math.prod, whole), dtype)
    return tuple(part.reshape(shape) for part, shape in zip(parts, whole, strict=True))


def _whole_tiles(n_rows):
    return -(-n_rows // ROWS) * ROWS


def multiply_padded(a, b, out, m, n, depth, scale, add, transposed):
    """out = scale a b, or out += scale a b if ``add``, for arrays ``with_room``: m rows and n
    columns.

    The sums have ``depth`` products. If ``transposed``, the left matrix is that of the columns of
    a.
    """
    left = a.T if transposed else a
    product = left[:m, :depth] @ b[:depth, :n] * scale
    out[:m, :n] = out[:m, :n] + product if add else product


@type_callable(multiply_padded)
def _type_of_multiply(context):
    number, flag = numba.int64, numba.boolean

    def signature(a, b, out, m, n, depth, scale, add, transposed):
        return numba.void(a, b, out, number, number, number, b.dtype, flag, flag)

    return signature


@lower_builtin(multiply_padded, *[numba.types.Any] * 9)
def _compile_multiply(context, builder, signature, arguments):
    """Compile ``_multiply`` once for all calls of a kernel. It need not be inlined: it cannot round
    differently.
    """
    return context.compile_internal(builder, _multiply, signature, arguments)


def _multiply(a, b, out, m, n, depth, scale, add, transposed):
    columns = LINE // b.itemsize
    row_step, column_step = (1, a.shape[1]) if transposed else (a.shape[1], 1)
    for j in range(0, n, columns):
        for i in range(0, m, ROWS):
            a_layout = i * row_step, row_step, column_step
            _tile(a, a_layout, b, (j, b.shape[1]), scale, out, depth, i, j, add, (0, 0))


_tile = tile_of(ROWS, WIDTH, fetches=False)
