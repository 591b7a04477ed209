"""A tile of a product of matrices: a few rows by a few columns, whose sums stay in vector
registers.

LLVM does not vectorise such a loop by itself, so it is written with LLVM's vector types.
"""

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

_FEATURES = llvmlite.binding.get_host_cpu_features()
# Of a vector register.
BITS = 512 if _FEATURES.get("avx512f") else 256 if _FEATURES.get("avx") else 128
UNROLLED = 4  # steps of the loop
INDEX = ir.IntType(64)


def tile_of(n_rows, width, fetches):
    """``tile(a, a_layout, b, b_layout, scale, out, depth, i, j, add, fetched)``, for n_rows by
    ``width`` vectors.

    It computes a tile of out = scale a b from row i and column j on, or adds to it. The numbers of
    a and of b are read as they lie in memory: with ``a_layout`` = (first, row_step, column_step),
    number (r, k) of the tile's rows of a is a.flat[first + r · row_step + k · column_step], and
    ``b_layout`` = (first, row_step) likewise, with a column step of one. Rows beyond the last one
    of out are written to the last: they have to be equal to it. If the function ``fetches``,
    ``fetched`` is (first, fetch_step): beside row k of b, the line of the number first + k ·
    fetch_step, counted from column j, is loaded to the cache.
    """

    @intrinsic
    def tile(typing_context, a, a_layout, b, b_layout, scale, out, depth, i, j, add, fetched):
        def generate(context, builder, signature, arguments):
            a_kind, _, b_kind, _, _, out_kind, *_ = signature.args
            a, a_layout, b, b_layout, scale, out, depth, i, j, add, fetched = arguments
            a, b = make_array(a_kind)(context, builder, a), make_array(b_kind)(context, builder, b)
            out = make_array(out_kind)(context, builder, out)
            first_row, row_step, column_step = cgutils.unpack_tuple(builder, a_layout)
            first_column, step = cgutils.unpack_tuple(builder, b_layout)
            first_fetched, fetch_step = cgutils.unpack_tuple(builder, fetched)
            lanes = BITS // a_kind.dtype.bitwidth
            vector = ir.VectorType(context.get_data_type(a_kind.dtype), lanes)
            row_i = builder.gep(a.data, [first_row])
            column_j = builder.gep(b.data, [first_column])

            def vectors_from(pointer):
                first = builder.bitcast(pointer, vector.as_pointer())
                return [builder.gep(first, [INDEX(n)]) for n in range(width)]

            def repeat(x):
                first = builder.insert_element(vector(ir.Undefined), x, INDEX(0))
                zeros = ir.VectorType(ir.IntType(32), lanes)(None)
                return builder.shuffle_vector(first, first, zeros)

            def add_to(total, x, flags=()):
                builder.store(builder.fadd(builder.load(total), x, flags=flags), total)

            def add_products(k):
                line = builder.gep(column_j, [builder.mul(k, step)])
                if fetches:
                    ahead = builder.add(first_fetched, builder.mul(k, fetch_step))
                    _fetch(builder, builder.gep(column_j, [ahead]))
                ys = [builder.load(pointer, align=4) for pointer in vectors_from(line)]
                column = builder.mul(k, column_step)
                totals = iter(sums)
                for start in starts:
                    x = repeat(builder.load(builder.gep(start, [column])))
                    for y in ys:
                        product = builder.fmul(x, y, flags=["contract"])
                        add_to(next(totals), product, flags=["contract"])

            m, _ = cgutils.unpack_tuple(builder, out.shape)
            last = builder.sub(m, INDEX(1))
            starts = []
            places = []
            for row in map(INDEX, range(n_rows)):
                starts.append(builder.gep(row_i, [builder.mul(row, row_step)]))
                at = builder.add(i, row)
                at = builder.select(builder.icmp_signed("<", at, last), at, last)
                first = cgutils.get_item_pointer(context, builder, out_kind, out, [at, j])
                places += vectors_from(first)
            sums = [cgutils.alloca_once_value(builder, vector(None)) for _ in places]
            groups = builder.sdiv(depth, INDEX(UNROLLED))
            done = builder.mul(groups, INDEX(UNROLLED))
            with cgutils.for_range(builder, groups) as loop:
                first = builder.mul(loop.index, INDEX(UNROLLED))
                for n in range(UNROLLED):
                    add_products(builder.add(first, INDEX(n)))
            with cgutils.for_range(builder, builder.sub(depth, done)) as loop:
                add_products(builder.add(done, loop.index))
            for total in sums:
                builder.store(builder.fmul(builder.load(total), repeat(scale)), total)
            # added at the end: a sum of few products is small, so it rounds little
            with builder.if_then(add):
                for total, place in zip(sums, places, strict=True):
                    add_to(total, builder.load(place, align=4))
            for total, place in zip(sums, places, strict=True):
                builder.store(builder.load(total), place, align=4)
            return context.get_dummy_value()

        parameters = a, a_layout, b, b_layout, a.dtype, out, depth, i, j, add, fetched
        return numba.void(*parameters), generate

    return tile


def _fetch(builder, pointer):
    """Load a line to the cache, or nothing if the address is invalid."""
    address = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    to_read = number(0)
    to_all_caches = number(3)
    data = number(1)
    builder.call(prefetch, [address, to_read, to_all_caches, data])
