"""A tile of a product of matrices: a few rows by a few columns, whose sums stay in vector registers.

LLVM does not vectorise such a loop by itself, so it is written with LLVM's vector types.
"""

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

_FEATURES = llvmlite.binding.get_host_cpu_features()
BITS = 512 if _FEATURES.get("avx512f") else 256 if _FEATURES.get("avx") else 128  # of a vector register
UNROLLED = 4  # steps of the loop


def tile_of(n_rows, width, fetches):
    """``tile(a, a_layout, b, b_layout, scale, out, depth, i, j, add, fetched)``, for n_rows by ``width`` vectors.

    It computes a tile of out = scale a b from row i and column j on, or adds to it. The numbers of a and of b are read
    as they lie in memory: with ``a_layout`` = (first, row_step, column_step), number (r, k) of the tile's rows of a is
    a.flat[first + r · row_step + k · column_step], and ``b_layout`` = (first, row_step) likewise, with a column step of
    1. Rows beyond the last one of out are written to the last: they have to be equal to it. If the function
    ``fetches``, ``fetched`` is (first, fetch_step): beside row k of b, the line of the number first + k · fetch_step,
    counted from column j, is loaded to the cache.
    """

    @intrinsic
    def tile(typing_context, a, a_layout, b, b_layout, scale, out, depth, i, j, add, fetched):
        def generate(context, builder, signature, arguments):
            kinds = [signature.args[n] for n in (0, 2, 5)]
            a, b, out = (
                make_array(kind)(context, builder, arguments[n]) for kind, n in zip(kinds, (0, 2, 5), strict=True)
            )
            _, a_layout, _, b_layout, scale, _, depth, i, j, add, fetched = arguments
            first_row, row_step, column_step = cgutils.unpack_tuple(builder, a_layout, 3)
            first_column, step = cgutils.unpack_tuple(builder, b_layout, 2)
            first_fetched, fetch_step = cgutils.unpack_tuple(builder, fetched, 2)
            number, lanes = context.get_data_type(kinds[0].dtype), BITS // kinds[0].dtype.bitwidth
            vector, index = ir.VectorType(number, lanes), ir.IntType(64)
            row_i, column_j = builder.gep(a.data, [first_row]), builder.gep(b.data, [first_column])
            starts = [builder.gep(row_i, [builder.mul(index(row), row_step)]) for row in range(n_rows)]

            def vectors_from(pointer):
                places = [builder.gep(pointer, [index(lanes * n)]) for n in range(width)]
                return [builder.bitcast(place, vector.as_pointer()) for place in places]

            def repeat(x):
                first = builder.insert_element(vector(ir.Undefined), x, index(0))
                return builder.shuffle_vector(first, first, ir.VectorType(ir.IntType(32), lanes)(None))

            def add_products(k):
                line = builder.gep(column_j, [builder.mul(k, step)])
                if fetches:
                    at = builder.add(first_fetched, builder.mul(k, fetch_step))
                    _fetch(builder, builder.bitcast(builder.gep(column_j, [at]), ir.IntType(8).as_pointer()))
                vectors = [builder.load(pointer, align=4) for pointer in vectors_from(line)]
                column = builder.mul(k, column_step)
                for start, row_sums in zip(starts, sums, strict=True):
                    x = builder.load(builder.gep(start, [column]))
                    repeated = repeat(x)
                    for total, y in zip(row_sums, vectors, strict=True):
                        product = builder.fmul(repeated, y, flags=["contract"])
                        builder.store(builder.fadd(builder.load(total), product, flags=["contract"]), total)

            m, _ = cgutils.unpack_tuple(builder, out.shape, 2)
            last, places = builder.sub(m, index(1)), []
            for row in range(n_rows):
                at = builder.add(i, index(row))
                at = builder.select(builder.icmp_signed("<", at, last), at, last)
                places.append(vectors_from(cgutils.get_item_pointer(context, builder, kinds[2], out, [at, j])))
            sums = [[cgutils.alloca_once_value(builder, vector(None)) for _ in range(width)] for _ in range(n_rows)]
            groups = builder.sdiv(depth, index(UNROLLED))
            done = builder.mul(groups, index(UNROLLED))
            with cgutils.for_range(builder, groups) as loop:
                first = builder.mul(loop.index, index(UNROLLED))
                for n in range(UNROLLED):
                    add_products(builder.add(first, index(n)))
            with cgutils.for_range(builder, builder.sub(depth, done)) as loop:
                add_products(builder.add(done, loop.index))
            pairs = [pair for row in zip(sums, places, strict=True) for pair in zip(*row, strict=True)]
            for total, _ in pairs:
                builder.store(builder.fmul(builder.load(total), repeat(scale)), total)
            with builder.if_then(add):  # at the end: a sum of few products is small, so it rounds little
                for total, place in pairs:
                    builder.store(builder.fadd(builder.load(place, align=4), builder.load(total)), total)
            for total, place in pairs:
                builder.store(builder.load(total), place, align=4)
            return context.get_dummy_value()

        return numba.void(a, a_layout, b, b_layout, a.dtype, out, depth, i, j, add, fetched), generate

    return tile


def _fetch(builder, address):
    """Load a line to the cache, or nothing if the address is invalid."""
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    to_read, to_all_caches, data = number(0), number(3), number(1)
    builder.call(prefetch, [address, to_read, to_all_caches, data])
