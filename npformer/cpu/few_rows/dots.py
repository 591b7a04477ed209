"""Rows times a matrix of floats or 8-bit integers whose columns are contiguous: dot products.

A tile of the result, a few rows by a few columns, is computed at once: each number that was read,
and each integer that became a float, is used for all of the tile. Its columns are far apart, so
that the processor reads several parts of memory at the same time, each in its order. (On a Zen 3,
one row takes 0.7 of the time of one column after another, and four columns side by side take longer
than that.)
"""

from functools import partial

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from npformer.cpu.jit import inlined
from npformer.cpu.llvm import (
    BITS,
    BYTE,
    INTEGER,
    WORD,
    add_product,
    arrays_of,
    new_sums,
    rows_of,
    vector_of,
)

BYTES_IN_CACHE = 2**17  # bytes of columns: more than four rows read them again, from the cache


@inlined
def multiply_transposed(a, b, out, first, last):
    """out[:, first:last] = a b[first:last]ᵀ, where the rows of a and b are contiguous.

    The order of a sum depends on its length only, not on the number of rows.
    """
    m, k = a.shape
    n = max(64, last - first if m <= 4 else BYTES_IN_CACHE // (k * b.itemsize))
    for start in range(first, last, n):
        block = b[: min(start + n, last)]
        columns = 4 if m <= 2 else 2  # of a tile
        step = (len(block) - start + columns - 1) // columns
        for i in range(0, m, 4):
            for j in range(start, start + step):
                if m == 1:
                    _dots_1_4(a, block, out, k, i, j, step)
                elif m == 2:
                    _dots_2_4(a, block, out, k, i, j, step)
                else:
                    _dots_4_2(a, block, out, k, i, j, step)
    whole = k - k % (BITS // 8 // a.itemsize)  # what fills vectors
    if whole < k:
        for i in range(m):
            for j in range(first, last):
                for rest in range(whole, k):
                    out[i, j] += a[i, rest] * b[j, rest]


def _dots(n_rows, n_columns):
    """``dots(a, b, out, depth, i, j, step)`` computes a tile of out.

    These are rows from i on, and columns j, j + step, …

    In place of rows beyond the last one of a or b, the last is computed again. What fills no vector
    is left out.
    """

    @intrinsic
    def dots(typing_context, a, b, out, depth, i, j, step):
        def generate(context, builder, signature, arguments):
            *values, depth, first_row, first_column, step = arguments
            a_array, b_array, out_array = arrays_of(context, builder, (a, b, out), values)
            rows = rows_of(builder, a_array, first_row, WORD(1), n_rows)
            columns = rows_of(builder, b_array, first_column, step, n_columns)
            place_of = partial(cgutils.get_item_pointer, context, builder)
            row_starts = [place_of(a, a_array, [row, WORD(0)]) for row in rows]
            column_starts = [place_of(b, b_array, [column, WORD(0)]) for column in columns]
            vector = vector_of(context, a.dtype)
            lanes = WORD(vector.count)
            read = _vector_at if a.dtype == b.dtype else _integers_at
            sums = [new_sums(builder, vector, n_columns) for _ in rows]
            with cgutils.for_range(builder, builder.sdiv(depth, lanes)) as loop:
                k = builder.mul(loop.index, lanes)
                xs = [_vector_at(builder, builder.gep(start, [k]), vector) for start in row_starts]
                for column, start in enumerate(column_starts):
                    y = read(builder, builder.gep(start, [k]), vector)
                    for x, row_sums in zip(xs, sums, strict=True):
                        add_product(builder, row_sums[column], x, y)
            for row, row_sums in zip(rows, sums, strict=True):
                for column, total in zip(columns, row_sums, strict=True):
                    result = _sum(builder, builder.load(total))
                    builder.store(result, place_of(out, out_array, [row, column]))
            return context.get_dummy_value()

        return numba.void(a, b, out, depth, i, j, step), generate

    return dots


def _vector_at(builder, pointer, vector):
    return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=1)


def _integers_at(builder, pointer, vector):
    """A vector of 8-bit integers, as floats."""
    integers = _vector_at(builder, pointer, ir.VectorType(BYTE, vector.count))
    wide = builder.sext(integers, ir.VectorType(INTEGER, vector.count))
    return builder.sitofp(wide, vector)


def _sum(builder, x):
    """The sum of the numbers of a vector: halves are added, then halves of these."""
    while x.type.count > 1:
        n = x.type.count // 2
        low, high = (
            builder.shuffle_vector(x, x, ir.VectorType(INTEGER, n)([*range(start, start + n)]))
            for start in (0, n)
        )
        x = builder.fadd(low, high)
    return builder.extract_element(x, WORD(0))


_dots_1_4 = _dots(1, 4)
_dots_2_4 = _dots(2, 4)
_dots_4_2 = _dots(4, 2)
