"""Rows times a matrix whose columns lie one after another in memory, of floats or 8-bit integers: dot products.

A tile of the result, a few rows by a few columns, is computed at once: each number that was read, and each integer that
became a float, is used for all of the tile. Its columns are far apart, so that the processor reads several parts of
memory at the same time, each in its order: that is 1.4 times as fast as one part, or as columns side by side. LLVM does
not vectorise the loop in this way by itself, so it is written with LLVM's vector types.
"""

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from npformer.cpu.jit import inlined
from npformer.cpu.tile import BITS

BLOCK = 256  # columns: these are read again from the cache for the next rows


@inlined
def multiply_transposed(a, b, out, first, last):
    """out[:, first:last] = a b[first:last]ᵀ, where the rows of a and b are contiguous.

    The order of a sum depends on its length only, not on the number of rows.
    """
    (m, k), lanes = a.shape, BITS // 8 // a.itemsize
    for start in range(first, last, BLOCK):
        block = b[: min(start + BLOCK, last)]
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

    The numbers at the end of a row that fill no vector are left out.
    Instead of rows beyond the last one of a or b, the last is computed again.
    """

    @intrinsic
    def dots(typing_context, a, b, out, depth, i, j, step):
        def generate(context, builder, signature, arguments):
            kinds = signature.args[:3]
            arrays = [make_array(kind)(context, builder, x) for kind, x in zip(kinds, arguments, strict=False)]
            depth, i, j, step = arguments[3:]
            number, lanes = context.get_data_type(kinds[0].dtype), BITS // kinds[0].dtype.bitwidth
            vector, index = ir.VectorType(number, lanes), ir.IntType(64)
            of_integers, integers = kinds[1].dtype != kinds[0].dtype, ir.VectorType(ir.IntType(32), lanes)
            kind = ir.VectorType(ir.IntType(8), lanes) if of_integers else vector

            def pointer_to(n, row, column):
                return cgutils.get_item_pointer(context, builder, kinds[n], arrays[n], [row, column])

            def numbers_of(n, count, first, step):
                """The numbers of rows of the n-th array."""
                last = builder.sub(cgutils.unpack_tuple(builder, arrays[n].shape, 2)[0], index(1))
                numbers = [builder.add(first, builder.mul(index(c), step)) for c in range(count)]
                return [builder.select(builder.icmp_signed("<", at, last), at, last) for at in numbers]

            rows, columns = numbers_of(0, n_rows, i, index(1)), numbers_of(1, n_columns, j, step)
            sums = [[cgutils.alloca_once_value(builder, vector(None)) for _ in columns] for _ in rows]
            of_rows = [pointer_to(0, row, index(0)) for row in rows]
            of_columns = [pointer_to(1, column, index(0)) for column in columns]
            with cgutils.for_range(builder, builder.sdiv(depth, index(lanes))) as loop:
                k = builder.mul(loop.index, index(lanes))

                def vector_at(pointer, kind):
                    return builder.load(builder.bitcast(builder.gep(pointer, [k]), kind.as_pointer()), align=1)

                xs = [vector_at(pointer, vector) for pointer in of_rows]
                for n, pointer in enumerate(of_columns):
                    y = vector_at(pointer, kind)
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
