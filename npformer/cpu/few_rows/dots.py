"""Rows times a matrix of floats or 8-bit integers whose columns are contiguous: dot products.

A tile of the result, a few rows by a few columns, is computed at once: each number that was read,
and each integer that became a float, is used for all of the tile. Its columns are far apart, so
that the processor reads several parts of memory at the same time, each in its order. (On a Zen 3,
one row takes 0.7 of the time of one column after another, and four columns side by side take longer
than that.) LLVM does not vectorise the loop in this way by itself, so it is written with LLVM's
vector types.
"""

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from npformer.cpu.few_rows.words import WORD
from npformer.cpu.jit import inlined
from npformer.cpu.tile import BITS

BYTES_IN_CACHE = 2**17  # bytes of columns: more than four rows read them again, from the cache
INTEGER = ir.IntType(32)
BYTE = ir.IntType(8)


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
        lanes = BITS // a.dtype.bitwidth

        def generate(context, builder, signature, arguments):
            *pointers, depth, i, j, step = arguments
            kinds = a, b, out
            arrays = [
                make_array(kind)(context, builder, x)
                for kind, x in zip(kinds, pointers, strict=True)
            ]
            vector = ir.VectorType(context.get_data_type(a.dtype), lanes)

            def rows_of(n, count, first, step):
                """The rows first, first + step, … of the n-th array, at most its last."""
                last = builder.sub(builder.extract_value(arrays[n].shape, 0), WORD(1))
                steps = [builder.mul(WORD(c), step) for c in range(count)]
                places = [builder.add(first, x) for x in steps]
                return [
                    builder.select(builder.icmp_signed("<", at, last), at, last) for at in places
                ]

            def pointer_to(n, row, column):
                at = [row, column]
                return cgutils.get_item_pointer(context, builder, kinds[n], arrays[n], at)

            def vector_at(pointer, kind):
                pointer = builder.bitcast(pointer, kind.as_pointer())
                return builder.load(pointer, align=1)

            def floats_at(pointer):
                """A vector of b."""
                if a.dtype == b.dtype:
                    return vector_at(pointer, vector)
                integers = vector_at(pointer, ir.VectorType(BYTE, lanes))
                wide = builder.sext(integers, ir.VectorType(INTEGER, lanes))
                return builder.sitofp(wide, vector)

            rows = rows_of(0, n_rows, i, WORD(1))
            columns = rows_of(1, n_columns, j, step)
            row_starts = [pointer_to(0, row, WORD(0)) for row in rows]
            column_starts = [pointer_to(1, column, WORD(0)) for column in columns]
            sums = [
                [cgutils.alloca_once_value(builder, vector(None)) for _ in columns] for _ in rows
            ]
            with cgutils.for_range(builder, builder.sdiv(depth, WORD(lanes))) as loop:
                k = builder.mul(loop.index, WORD(lanes))
                xs = [vector_at(builder.gep(start, [k]), vector) for start in row_starts]
                for n, start in enumerate(column_starts):
                    y = floats_at(builder.gep(start, [k]))
                    for x, row_sums in zip(xs, sums, strict=True):
                        product = builder.fmul(x, y, flags=["contract"])
                        total = builder.load(row_sums[n])
                        total = builder.fadd(total, product, flags=["contract"])
                        builder.store(total, row_sums[n])
            for row, row_sums in zip(rows, sums, strict=True):
                for column, total in zip(columns, row_sums, strict=True):
                    result = _sum(builder, builder.load(total))
                    builder.store(result, pointer_to(2, row, column))
            return context.get_dummy_value()

        return numba.void(a, b, out, depth, i, j, step), generate

    return dots


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
