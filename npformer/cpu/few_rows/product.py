"""The product of a few rows with a large matrix, which threads share.

It is computed by one call of BLAS (``WHOLE``), or in pieces. A piece has some rows of the matrix,
or some of its columns. What the job's fields hold depends on the way in which pieces are computed:

===============  ==============  =================================  ==============================
way              ``a``           ``b``                              ``out``
===============  ==============  =================================  ==============================
BY_ROWS          rows            the matrix                         one product for each piece, one
                                                                    below the other: they are added
PANELS           rows in panels  not read: ``panels`` has copies    the result
                                 of the columns
TILES            rows in panels  the matrix                         the result
COLUMNS_BY_BLAS  rows            the matrix                         the result
DOTS             rows            the transpose of the matrix        the result
===============  ==============  =================================  ==============================

``_operands`` prepares them, and ``compute`` computes a piece.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.few_rows.dots import multiply_transposed
from npformer.cpu.few_rows.helpers import JIT, PIECES, board_with_helpers, share_pieces
from npformer.cpu.few_rows.panels import (
    COLUMNS,
    COPIED,
    TILED,
    columns_in_panels,
    multiply_panels,
    multiply_tiles,
    rows_in_panels,
)
from npformer.cpu.few_rows.records import PIECE_SIGNATURE, Matrix, array_at, record_at
from npformer.cpu.jit import address_of, inlined
from npformer.cpu.scalar import like
from npformer.runtime.threads import FEW_ROWS

# Up to this many rows, times a matrix stored by rows, take the loops in this file; more take tiles,
# or BLAS.
THIN = 2
WORTH_IT = 2**15  # the smallest right matrix that is shared between threads, in entries
WORTH_A_COPY = 12  # products of a matrix, after which a copy of it in panels has paid off
PIECE_SIZE = 2**18  # the fewest bytes of the right matrix in each of more than two pieces

WHOLE, BY_ROWS, PANELS, TILES, COLUMNS_BY_BLAS, DOTS = range(6)


class ProductJob(NamedTuple):
    """The job out = a b, in the form that the way needs. The rows of the matrices may have more
    numbers than are multiplied.
    """

    pieces: int
    way: int
    depth: int
    columns: int
    a: np.ndarray
    b: np.ndarray
    panels: np.ndarray
    out: np.ndarray
    blas: int
    wide: bool


product_job_at = record_at(ProductJob)


def team_for(dtype, matrix_dtype=None):
    """What a thread needs for products of few rows; wakes helpers if it may have some.

    ``dtype`` is that of the rows, and of the matrix unless ``matrix_dtype`` is given. The result is
    (address of the board, or 0 if the thread works alone; address of the function that computes a
    piece of a product; ``BLAS[dtype]``): a plain tuple, as numba takes microseconds to look at the
    type of a named one.
    """
    piece_of_product = _address_of_piece(dtype, matrix_dtype or dtype) if JIT else 0
    return board_with_helpers(), piece_of_product, BLAS[dtype]


def panels_of(matrices, max_rows, n_steps):
    """``columns_in_panels`` for that many products of up to ``max_rows`` rows, if that pays off.

    Otherwise the panels are empty.
    """
    if COPIED and THIN < max_rows <= 2 * FEW_ROWS and n_steps >= WORTH_A_COPY:
        return columns_in_panels(matrices)
    return [np.empty(0, x.dtype) for x in matrices]


@inlined
def multiply_few_rows(team, a, b, panels, out):
    """out = a b, where the rows of a and of out are contiguous.

    The rows of b are contiguous, too, or its columns. In place of a matrix of int8, b is its
    transpose, with contiguous rows. ``panels`` has the columns of b as ``columns_in_panels`` copies
    them, or nothing.

    If a has only a few rows, the product is shared with the helpers that are awake. A piece is a
    range of columns of b, or, if a has very few rows, a range of rows of b, so that each thread
    reads one contiguous part of memory. The pieces do not depend on how many helpers are awake, so
    the result is always the same.
    """
    board, piece_of_product, blas = team
    blas_address, blas_is_wide = blas
    _, k = a.shape
    n = out.shape[1]
    way = _way_of(a, b, panels, n)
    if way == WHOLE:
        multiply(blas, a, b, out, False)
        return
    pieces = _n_pieces(way, k, n, b.itemsize)
    left, right, result = _operands(way, pieces, a, b, out)
    job = ProductJob(
        pieces=pieces,
        way=way,
        depth=k,
        columns=n,
        a=left,
        b=right,
        panels=panels,
        out=result,
        blas=blas_address,
        wide=blas_is_wide,
    )
    share_pieces(board if k * n >= WORTH_IT else 0, piece_of_product, job)
    if way == BY_ROWS:
        _add_up(result, out)


@inlined
def _way_of(a, b, panels, n):
    """How the product with n columns is computed."""
    m, k = a.shape
    if not JIT:
        return WHOLE
    if b.itemsize == 1:
        return DOTS
    if m > FEW_ROWS:
        return WHOLE
    if m > THIN and len(panels) > 0:
        return PANELS
    if k * n < WORTH_IT:
        return WHOLE
    if b.strides[1] != b.itemsize:
        return DOTS
    if m <= THIN:
        return BY_ROWS
    if n < 2 * COLUMNS:
        return WHOLE
    return TILES if m <= TILED else COLUMNS_BY_BLAS


@inlined
def _n_pieces(way, k, n, itemsize):
    """8, 4 or 2, which two threads share evenly."""
    most = min(k * n * itemsize // PIECE_SIZE, k // 128 if way == BY_ROWS else n // 64)
    pieces = PIECES
    while pieces > max(2, most):
        pieces //= 2
    return pieces


@inlined
def _operands(way, pieces, a, b, out):
    """The fields a, b and out of a job."""
    left = rows_in_panels(a) if way in (PANELS, TILES) else _whole_rows(a)
    # In place of integers, b is the transpose already.
    right = _whole_rows(b.T) if way == DOTS and b.itemsize > 1 else _whole_rows(b)
    products = (pieces * len(a), out.shape[1])
    result = np.empty(products, a.dtype) if way == BY_ROWS else _whole_rows(out)
    return left, right, result


@cache
def _address_of_piece(dtype, matrix_dtype):
    """The address of ``compute(job, piece)``, which computes a piece of a product.

    The kernels that multiply call it by its address, so it is not compiled again into each of them.
    """

    def compute(address, piece):
        job = product_job_at(address)
        depth = job.depth
        a = array_at(job.a, dtype)
        b = array_at(job.b, matrix_dtype)
        out = array_at(job.out, dtype)
        first = _first_column(job, piece)
        last = _first_column(job, piece + 1)
        if job.way == BY_ROWS:
            m = job.a.rows
            first_row = depth * piece // job.pieces
            last_row = depth * (piece + 1) // job.pieces
            _add_rows(a, b, out[m * piece : m * (piece + 1)], first_row, last_row)
        elif job.way == PANELS:
            panels = array_at(job.panels, dtype)[0]
            multiply_panels(a, panels, out, depth, job.columns, first, last)
        elif job.way == TILES:
            multiply_tiles(a, b, out, first, last)
        elif job.way == COLUMNS_BY_BLAS:
            blas = (job.blas, job.wide)
            multiply(blas, a[:, :depth], b[:, first:last], out[:, first:last], False)
        else:
            multiply_transposed(a[:, :depth], b[:, :depth], out, first, last)

    return address_of(compute, PIECE_SIGNATURE)


@inlined
def _whole_rows(x):
    """The matrix whose rows have all numbers up to the next row of x.

    So LLVM knows that they are contiguous.
    """
    step = max(x.strides[0] // x.itemsize, x.shape[1])  # a single row may have any stride
    return array_at(Matrix(x.ctypes.data, len(x), step), x.dtype)


@inlined
def _first_column(job, piece):
    """The first column of a piece, a multiple of 64; after the last piece, the end."""
    if piece == job.pieces:
        return job.columns
    return job.columns * piece // job.pieces // 64 * 64


@inlined
def _add_rows(a, b, out, first, last):
    """out = a[:, first:last] b[first:last], eight rows of b at a time.

    They are far apart: as in ``dots``, that is faster.
    """
    out[:, :] = like(a[0, 0], 0)
    step = (last - first) // 8
    for i in range(first, first + step):
        for r in range(len(out)):
            _add_eight(a[r, i:last:step], b[i:last:step], out[r])
    for i in range(first + 8 * step, last):
        for r in range(len(out)):
            add_multiple(a[r, i], b[i], out[r])


@inlined
def _add_eight(x, b, out):
    # Read before the loop: LLVM does not know that out is no part of x.
    x0 = x[0]
    x1 = x[1]
    x2 = x[2]
    x3 = x[3]
    x4 = x[4]
    x5 = x[5]
    x6 = x[6]
    x7 = x[7]
    for j in range(len(out)):
        total = x0 * b[0, j] + x1 * b[1, j] + x2 * b[2, j] + x3 * b[3, j]
        out[j] += total + x4 * b[4, j] + x5 * b[5, j] + x6 * b[6, j] + x7 * b[7, j]


@inlined
def add_multiple(x, b, out):
    """out += x b, of two rows."""
    for j in range(len(out)):
        out[j] += x * b[j]


@inlined
def _add_up(sums, out):
    m = len(out)
    for r in range(m):
        for j in range(out.shape[1]):
            out[r, j] = sums[r, j]
        for i in range(m + r, len(sums), m):
            add_multiple(like(sums[0, 0], 1), sums[i], out[r])
