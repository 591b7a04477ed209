"""A few rows times a large matrix, which BLAS would copy first. That pays off only for many rows.

A tile of the result, a few rows by a few columns, stays in vector registers while the columns of the matrix are read;
the next rows read the same columns again, then from the cache. The rows are copied to panels first, where the numbers
that a step of the loop needs lie side by side. The columns of a matrix that is used often can be copied to panels, too:
for 8 to 32 rows this is 1.5 times as fast as BLAS or more. LLVM does not vectorise the loop in this way by itself, so
it is written with LLVM's vector types.
"""

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from npformer.cpu.jit import inlined, kernel
from npformer.cpu.scalar import like
from npformer.runtime.memory import empty
from npformer.runtime.threads import in_parallel

_FEATURES = llvmlite.binding.get_host_cpu_features()
BITS = 512 if _FEATURES.get("avx512f") else 256 if _FEATURES.get("avx") else 128  # of a vector register
WIDTH = 4 if BITS == 512 else 2  # vectors per row of a tile: there are 32 registers of 512 bits, but perhaps 16 others
COLUMNS = WIDTH * BITS // 32  # of a tile in float32; half as many in float64
# Without registers of 512 bits, a tile is as wide as a cache line (64 bytes), and the processor does not foresee that
# the next line is in the next row: the tile fetches the line of the same row that is this many tiles ahead; in panels,
# all row tiles together fetch the next panel.
AHEAD = 0 if BITS == 512 else 2
TILED = 64 if BITS == 512 else 12  # rows: BLAS is faster for more, without panels
COPIED = BITS < 512  # whether decoding copies weights to panels; not measured where tiles are four lines wide
UNROLLED = 4  # steps of the loop
LINE = 64  # bytes of a cache line


@inlined
def rows_in_panels(a):
    """Panels (panels, depth · rows) of six rows, or of four if there are no more then. The last is filled up."""
    m, depth = a.shape
    height = 4 if (m + 3) // 4 == (m + 5) // 6 else 6  # tiles of four rows read b equally often, and compute less
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
def multiply_columns(rows, b, out, first, last):
    """out[:, first:last] = a b[:, first:last], at least COLUMNS columns or none, where rows are those of a in panels.

    Rows of b and out are contiguous.
    """
    columns = WIDTH * BITS // (8 * b.itemsize)
    for start in range(first, last, columns):
        j = min(start, last - columns)  # the last tile may compute some columns again
        part, n = b.reshape(b.size)[j:], b.shape[1]
        for i in range(len(rows)):
            _multiply_tile(rows[i], part, n, (AHEAD * columns, n), out, len(b), i, j)


@inlined
def multiply_panels(rows, panels, out, depth, n, first, last):
    """``multiply_columns`` for b (depth, n), from ``columns_in_panels``; first is a multiple of 64."""
    columns = WIDTH * BITS // (8 * panels.itemsize)
    fetch_step = columns // len(rows)
    for start in range(first, last, columns):
        part, j = panels[start * depth :], min(start, n - columns)
        for i in range(len(rows)):  # meanwhile, each fetches a part of the next panel
            fetched = (columns + i * fetch_step) * depth, fetch_step
            _multiply_tile(rows[i], part, columns, fetched, out, depth, i, j)


@inlined
def _multiply_tile(panel, b, step, fetched, out, depth, i, j):
    height = len(panel) // depth
    if height == 4:
        _tile_4(panel, (1, 4), b, step, like(panel[0], 1), out, depth, i * height, j, False, fetched)
    else:
        _tile_6(panel, (1, 6), b, step, like(panel[0], 1), out, depth, i * height, j, False, fetched)


def columns_in_panels(matrices):
    """Panels of the columns of each matrix, one after another in a vector; the last one has the last columns.

    A vector is empty if the matrix has too few columns. All are parts of one array, as large arrays lie in large pages
    of memory.
    """
    itemsize = matrices[0].itemsize
    columns = WIDTH * BITS // (8 * itemsize)
    sizes = [-(-w.shape[1] // columns) * columns * len(w) if w.shape[1] >= columns else 0 for w in matrices]
    whole = empty((sum(sizes) + LINE // itemsize,), matrices[0].dtype)
    parts = np.split(whole[-whole.ctypes.data % LINE // itemsize :], np.cumsum(sizes))[:-1]

    def copy(pair):
        w, part = pair
        if part.size:
            _copy_to_panels(w.ravel("K"), *(step // itemsize for step in w.strides), *w.shape, columns, part)

    in_parallel(copy, list(zip(matrices, parts, strict=True)))
    return parts


@kernel
def _copy_to_panels(w, row_step, column_step, depth, n, columns, panels):
    for start in range(0, n, columns):
        first = min(start, n - columns)
        panel = panels[start * depth : (start + columns) * depth]
        if column_step == 1:
            for k in range(depth):
                row, to = w[first + k * row_step : first + k * row_step + columns], panel[k * columns :]
                for j in range(len(row)):
                    to[j] = row[j]
        else:
            for j in range(columns):
                column = w[(first + j) * column_step : (first + j) * column_step + depth]
                for k in range(depth):
                    panel[k * columns + j] = column[k]


def tile_of(n_rows, width, fetches):
    """``tile(a, a_steps, b, step, scale, out, depth, i, j, add, fetched)``, for n_rows by ``width`` vectors.

    It computes a tile of out = scale a b from row i and column j on, or adds to it. ``a`` begins with row i of the left matrix;
    ``a_steps`` are from one row to the next, and from one column to the next. ``b`` begins with column j of the right
    one, whose next row is ``step`` numbers later. Rows beyond the last one of out are written to the last: they have to
    be equal to it. If it ``fetches``, ``fetched`` is (first, fetch_step): beside row k of b, the line of the number
    first + k · fetch_step is loaded to the cache.
    """

    @intrinsic
    def tile(typing_context, a, a_steps, b, step, scale, out, depth, i, j, add, fetched):
        def generate(context, builder, signature, arguments):
            kinds = [signature.args[n] for n in (0, 2, 5)]
            a, b, out = (
                make_array(kind)(context, builder, arguments[n]) for kind, n in zip(kinds, (0, 2, 5), strict=True)
            )
            _, a_steps, _, step, scale, _, depth, i, j, add, fetched = arguments
            row_step, column_step = cgutils.unpack_tuple(builder, a_steps, 2)
            first_fetched, fetch_step = cgutils.unpack_tuple(builder, fetched, 2)
            number, lanes = context.get_data_type(kinds[0].dtype), BITS // kinds[0].dtype.bitwidth
            vector, index = ir.VectorType(number, lanes), ir.IntType(64)
            starts = [builder.gep(a.data, [builder.mul(index(row), row_step)]) for row in range(n_rows)]

            def vectors_from(pointer):
                places = [builder.gep(pointer, [index(lanes * n)]) for n in range(width)]
                return [builder.bitcast(place, vector.as_pointer()) for place in places]

            def repeat(x):
                first = builder.insert_element(vector(ir.Undefined), x, index(0))
                return builder.shuffle_vector(first, first, ir.VectorType(ir.IntType(32), lanes)(None))

            def add_products(k):
                line = builder.gep(b.data, [builder.mul(k, step)])
                if fetches:
                    at = builder.add(first_fetched, builder.mul(k, fetch_step))
                    _fetch(builder, builder.bitcast(builder.gep(b.data, [at]), ir.IntType(8).as_pointer()))
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

        return numba.void(a, a_steps, b, step, a.dtype, out, depth, i, j, add, fetched), generate

    return tile


def _fetch(builder, address):
    """Load a line to the cache, or nothing if the address is invalid."""
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    to_read, to_all_caches, data = number(0), number(3), number(1)
    builder.call(prefetch, [address, to_read, to_all_caches, data])


_tile_4, _tile_6 = (tile_of(n_rows, WIDTH, fetches=AHEAD > 0) for n_rows in (4, 6))
