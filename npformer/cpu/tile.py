"""A few rows times a large matrix, which is read without being copied.

BLAS copies such a matrix before it multiplies by it, which pays off only for many rows. Here a tile of the result, a
few rows by a few columns, stays in vector registers while the columns of the matrix are read; the next rows read the
same columns again, then from the cache. LLVM does not vectorise the loop in this way by itself, so it is written with
LLVM's vector types.
"""

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from npformer.cpu.jit import inlined

_FEATURES = llvmlite.binding.get_host_cpu_features()
BITS = 512 if _FEATURES.get("avx512f") else 256 if _FEATURES.get("avx") else 128  # of a vector register
WIDTH = 4 if BITS == 512 else 2  # vectors per row of a tile: there are 32 registers of 512 bits, but perhaps 16 others
COLUMNS = WIDTH * BITS // 32  # of a tile in float32; half as many in float64
# Without registers of 512 bits, a tile is as wide as a cache line (64 bytes), and the processor does not foresee that
# the next line is in the next row: the tile fetches the line of the same row that is this many tiles ahead. And BLAS is
# faster if there are more rows than this.
AHEAD = 0 if BITS == 512 else 2
TILED = 64 if BITS == 512 else 12


@inlined
def multiply_columns(a, b, out, first, last):
    """out[:, first:last] = a b[:, first:last], at least COLUMNS columns or none. Rows of b and out are contiguous."""
    m, columns = len(a), WIDTH * BITS // (8 * a.itemsize)
    fours, sixes = (m + 3) // 4, (m + 5) // 6
    for start in range(first, last, columns):
        j = min(start, last - columns)  # the last tile may compute some columns again
        if fours == sixes:  # tiles of four rows read b equally often, and compute less
            for i in range(0, m, 4):
                _tile_4(a, b, out, i, j)
        else:
            for i in range(0, m, 6):
                _tile_6(a, b, out, i, j)


def _tile(n_rows):
    """``tile(a, b, out, i, j)`` computes ``n_rows`` rows of out from i on, in WIDTH vectors of columns from j on.

    In place of rows beyond the last one it computes the last one again.
    """

    @intrinsic
    def tile(typing_context, a, b, out, i, j):
        def generate(context, builder, signature, arguments):
            a_type, b_type, out_type = kinds = signature.args[:3]
            a, b, out = (make_array(kind)(context, builder, x) for kind, x in zip(kinds, arguments[:3], strict=True))
            i, j = arguments[3:]
            number, lanes = context.get_data_type(a_type.dtype), BITS // a_type.dtype.bitwidth
            vector, index = ir.VectorType(number, lanes), ir.IntType(64)

            def element(kind, array, row, column):
                return cgutils.get_item_pointer(context, builder, kind, array, [row, column])

            def as_vector(pointer):
                return builder.bitcast(pointer, vector.as_pointer())

            m, depth = cgutils.unpack_tuple(builder, a.shape, 2)
            last = builder.sub(m, index(1))
            rows = [builder.add(i, index(row)) for row in range(n_rows)]
            rows = [builder.select(builder.icmp_signed("<", row, last), row, last) for row in rows]
            columns = [builder.add(j, index(lanes * n)) for n in range(WIDTH)]
            sums = [[cgutils.alloca_once_value(builder, vector(None)) for _ in columns] for _ in rows]
            with cgutils.for_range(builder, depth) as loop:
                if AHEAD:
                    ahead = element(b_type, b, loop.index, builder.add(j, index(lanes * WIDTH * AHEAD)))
                    _fetch(builder, builder.bitcast(ahead, ir.IntType(8).as_pointer()))
                vectors = [builder.load(as_vector(element(b_type, b, loop.index, c)), align=4) for c in columns]
                for row, row_sums in zip(rows, sums, strict=True):
                    x = builder.load(element(a_type, a, row, loop.index))
                    repeated = builder.insert_element(vector(ir.Undefined), x, index(0))
                    repeated = builder.shuffle_vector(repeated, repeated, ir.VectorType(ir.IntType(32), lanes)(None))
                    for total, y in zip(row_sums, vectors, strict=True):
                        product = builder.fmul(repeated, y, flags=["contract"])
                        builder.store(builder.fadd(builder.load(total), product, flags=["contract"]), total)
            for row, row_sums in zip(rows, sums, strict=True):
                for column, total in zip(columns, row_sums, strict=True):
                    builder.store(builder.load(total), as_vector(element(out_type, out, row, column)), align=4)
            return context.get_dummy_value()

        return numba.void(a, b, out, numba.int64, numba.int64), generate

    return tile


def _fetch(builder, address):
    """Load a line to the cache, or nothing if the address is invalid."""
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    to_read, to_all_caches, data = number(0), number(3), number(1)
    builder.call(prefetch, [address, to_read, to_all_caches, data])


_tile_4, _tile_6 = _tile(4), _tile(6)
