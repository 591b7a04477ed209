"""A tile of a product of matrices: a few rows by a few columns, whose sums stay in vector
registers.
"""

from llvmlite import ir
from numba import void
from numba.core import cgutils
from numba.extending import intrinsic

from npformer.cpu.llvm import (
    BYTE,
    INTEGER,
    WORD,
    add_product,
    arrays_of,
    new_sums,
    repeated,
    rows_of,
    vector_of,
)

UNROLLED = 4  # steps of the loop


def register_tile_of(n_rows, width, fetches):
    """``tile(a, b, out, a_layout, b_layout, fetched, scale, depth, i, j, add)``, for n_rows by
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
    def tile(typing_context, a, b, out, a_layout, b_layout, fetched, scale, depth, i, j, add):
        kinds = a, b, out, a_layout, b_layout, fetched, a.dtype, depth, i, j, add

        def generate(context, builder, signature, arguments):
            *values, a_layout, b_layout, fetched, scale, depth, i, j, add = arguments
            a_array, b_array, out_array = arrays_of(context, builder, (a, b, out), values)
            vector = vector_of(context, a.dtype)
            row_starts, column_step = _starts_of(builder, a_array, a_layout, n_rows)
            vectors_at = _reader_of_b(
                builder, b_array, b_layout, fetched if fetches else None, vector, width
            )
            rows = rows_of(builder, out_array, i, WORD(1), n_rows)
            places = []
            for row in rows:
                start = cgutils.get_item_pointer(context, builder, out, out_array, [row, j])
                places += _vectors_from(builder, start, vector, width)
            sums = new_sums(builder, vector, n_rows * width)

            def add_products(k):
                ys = vectors_at(k)
                column = builder.mul(k, column_step)
                totals = iter(sums)
                for start in row_starts:
                    x = repeated(builder, builder.load(builder.gep(start, [column])), vector)
                    for y in ys:
                        add_product(builder, next(totals), x, y)

            _for_each(builder, depth, add_products)
            _finish(builder, sums, repeated(builder, scale, vector), places, add)
            return context.get_dummy_value()

        return void(*kinds), generate

    return tile


def _starts_of(builder, array, layout, n_rows):
    """Where the tile's rows of a begin, and the step from one number of a row to the next."""
    first, row_step, column_step = cgutils.unpack_tuple(builder, layout)
    start = builder.gep(array.data, [first])
    steps = [builder.mul(WORD(row), row_step) for row in range(n_rows)]
    return [builder.gep(start, [step]) for step in steps], column_step


def _reader_of_b(builder, array, layout, fetched, vector, width):
    """``vectors_at(k)``, which reads row k of b in the tile, and fetches a line beside it if
    ``fetched`` is given.
    """
    first, row_step = cgutils.unpack_tuple(builder, layout)
    start = builder.gep(array.data, [first])

    def vectors_at(k):
        row = builder.gep(start, [builder.mul(k, row_step)])
        if fetched is not None:
            first_fetched, fetch_step = cgutils.unpack_tuple(builder, fetched)
            ahead = builder.add(first_fetched, builder.mul(k, fetch_step))
            _fetch(builder, builder.gep(start, [ahead]))
        pointers = _vectors_from(builder, row, vector, width)
        return [builder.load(pointer, align=4) for pointer in pointers]

    return vectors_at


def _vectors_from(builder, pointer, vector, width):
    """Pointers to vectors that lie side by side."""
    first = builder.bitcast(pointer, vector.as_pointer())
    return [builder.gep(first, [WORD(n)]) for n in range(width)]


def _for_each(builder, n, body):
    """``body(k)`` for k = 0, …, n - 1, several times in each round of a loop."""
    rounds = builder.sdiv(n, WORD(UNROLLED))
    done = builder.mul(rounds, WORD(UNROLLED))
    with cgutils.for_range(builder, rounds) as loop:
        first = builder.mul(loop.index, WORD(UNROLLED))
        for i in range(UNROLLED):
            body(builder.add(first, WORD(i)))
    with cgutils.for_range(builder, builder.sub(n, done)) as loop:
        body(builder.add(done, loop.index))


def _finish(builder, sums, scale, places, add):
    """Scale the sums and write them to their places, or add them to what is there."""
    for total in sums:
        builder.store(builder.fmul(builder.load(total), scale), total)
    # Added at the end: a sum of few products is small, so it rounds little.
    with builder.if_then(add):
        for total, place in zip(sums, places, strict=True):
            before = builder.load(place, align=4)
            builder.store(builder.fadd(builder.load(total), before), total)
    for total, place in zip(sums, places, strict=True):
        builder.store(builder.load(total), place, align=4)


def _fetch(builder, pointer):
    """Load a line to the cache, or nothing if the address is invalid."""
    address = builder.bitcast(pointer, BYTE.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [address.type, INTEGER, INTEGER, INTEGER])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    to_read = INTEGER(0)
    to_all_caches = INTEGER(3)
    data = INTEGER(1)
    builder.call(prefetch, [address, to_read, to_all_caches, data])
