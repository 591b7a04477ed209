"""Rows times a matrix whose columns lie one after another in memory, of floats or 8-bit integers: dot products.

A tile of the result, a few rows by a few columns, is computed at once: each number that was read, and each integer that
became a float, is used for all of the tile. Its columns are far apart, so that the processor reads several parts of
memory at the same time, each in its order. (On a Zen 3, one row takes 0.7 of the time of one column after another, and
four columns side by side take longer than that.) LLVM does not vectorise the loop in this way by itself, so it is
written with LLVM's vector types.
"""

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from npformer.cpu.jit import inlined
from npformer.cpu.tile import BITS

BLOCK = 2**17  # bytes of columns: more than four rows read them again, from the cache


@inlined
def multiply_transposed(a, b, out, first, last):
    """out[:, first:last] = a b[first:last]ᵀ, where the rows of a and b are contiguous.

    The order of a sum depends on its length only, not on the number of rows.
    """
    (m, k), lanes = a.shape, BITS // 8 // a.itemsize
    n = max(64, last - first if m <= 4 else BLOCK // (k * b.itemsize))
    for start in range(first, last, n):
        block = b[: min(start + n, last)]
        half, quarter = (len(block) - start + 1) // 2, (len(block) - start + 3) // 4
        if m == 1:
            for j in range(start, start + quarter):
                _dots_1_4(a, block, out, k, 0, j, quarter)
        elif m == 2:
            for j in range(start, start + quarter):
                _dots_2_4(a, block, out, k, 0, j, quarter)
        else:
            for i in range(0, m, 4):
                for j in range(start, start + half):
                    _dots_4_2(a, block, out, k, i, j, half)
    for i in range(m if k % lanes else 0):
        for j in range(first, last):
            for rest in range(k // lanes * lanes, k):
                out[i, j] += a[i, rest] * b[j, rest]


def _dots(n_rows, n_columns):
    """``dots(a, b, out, depth, i, j, step)`` computes a tile of out: rows from i on, and columns j, j + step, …

    In place of rows beyond the last one of a or b, the last is computed again. What fills no vector is left out.
    """

    @intrinsic
    def dots(typing_context, a, b, out, depth, i, j, step):
        def generate(context, builder, signature, arguments):
            kinds = signature.args[:3]
            arrays = [make_array(kind)(context, builder, x) for kind, x in zip(kinds, arguments[:3], strict=True)]
            depth, i, j, step = arguments[3:]
            number, lanes = context.get_data_type(kinds[0].dtype), BITS // kinds[0].dtype.bitwidth
            vector, index = ir.VectorType(number, lanes), ir.IntType(64)
            of_integers, integers = kinds[1].dtype != kinds[0].dtype, ir.VectorType(ir.IntType(32), lanes)
            of_b = ir.VectorType(ir.IntType(8), lanes) if of_integers else vector

            def pointer_to(n, row, column):
                return cgutils.get_item_pointer(context, builder, kinds[n], arrays[n], [row, column])

            def rows_of(n, count, first, step):
                """The indices first, first + step, … of rows of the n-th array, at most that of its last row."""
                last = builder.sub(cgutils.unpack_tuple(builder, arrays[n].shape, 2)[0], index(1))
                found = [builder.add(first, builder.mul(index(c), step)) for c in range(count)]
                return [builder.select(builder.icmp_signed("<", at, last), at, last) for at in found]

            rows, columns = rows_of(0, n_rows, i, index(1)), rows_of(1, n_columns, j, step)
            sums = [[cgutils.alloca_once_value(builder, vector(None)) for _ in columns] for _ in rows]
            starts = [pointer_to(0, row, index(0)) for row in rows]
            column_starts = [pointer_to(1, column, index(0)) for column in columns]
            with cgutils.for_range(builder, builder.sdiv(depth, index(lanes))) as loop:
                k = builder.mul(loop.index, index(lanes))

                def vector_at(pointer, kind):
                    return builder.load(builder.bitcast(builder.gep(pointer, [k]), kind.as_pointer()), align=1)

                xs = [vector_at(pointer, vector) for pointer in starts]
                for n, pointer in enumerate(column_starts):
                    y = vector_at(pointer, of_b)
                    if of_integers:
                        y = builder.sitofp(builder.sext(y, integers), vector)
                    for x, row_sums in zip(xs, sums, strict=True):
                        product = builder.fmul(x, y, flags=["contract"])
                        total = builder.load(row_sums[n])
                        builder.store(builder.fadd(total, product, flags=["contract"]), row_sums[n])
            for row, row_sums in zip(rows, sums, strict=True):
                for column, total in zip(columns, row_sums, strict=True):
                    builder.store(_sum(builder, builder.load(total), lanes), pointer_to(2, row, column))
            return context.get_dummy_value()

        return numba.void(a, b, out, depth, i, j, step), generate

    return dots


def _sum(builder, x, lanes):
    """The sum of the numbers of a vector: halves are added, then halves of these."""
    while lanes > 1:
        lanes //= 2
        halves = [[*range(lanes)], [*range(lanes, 2 * lanes)]]
        low, high = (
            builder.shuffle_vector(x, x, ir.Constant(ir.VectorType(ir.IntType(32), lanes), half)) for half in halves
        )
        x = builder.fadd(low, high)
    return builder.extract_element(x, ir.IntType(64)(0))


_dots_1_4, _dots_2_4, _dots_4_2 = _dots(1, 4), _dots(2, 4), _dots(4, 2)
