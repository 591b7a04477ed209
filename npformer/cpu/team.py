"""Work of some microseconds that threads share: above all products of a few rows with a large matrix, as in decoding.

Most of the time of such a product is spent on reading the matrix. One core cannot read memory as fast as several can,
and the threads of BLAS copy such a matrix before they multiply by it. So helper threads wait for pieces of a job in a
busy loop (they spin), since a product may take only 50 microseconds. The calling thread does not wait for helpers to
wake up: each thread that is free takes the next piece, so without helpers the caller computes all of them. It does wait
for pieces that helpers have taken. While threads wait they give way to others now and then: to programs, and to helpers
that lost their core in the middle of a piece. The helpers go to sleep soon after the last job.
"""

import atexit
import ctypes
import math
import sys
import threading
import time
from functools import cache

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

import numba
import numpy as np
from llvmlite import binding, ir
from numba.extending import intrinsic

from npformer.cpu.blas import multiply
from npformer.cpu.dots import multiply_transposed
from npformer.cpu.jit import address_of, inlined, kernel
from npformer.cpu.panels import (
    COLUMNS,
    COPIED,
    TILED,
    columns_in_panels,
    multiply_columns,
    multiply_panels,
    rows_in_panels,
)
from npformer.cpu.scalar import like
from npformer.runtime.forks import in_forked_process
from npformer.runtime.threads import FEW_ROWS, call_helpers, n_kernel_threads

THIN = 2  # up to this many rows, times a matrix stored by rows, take the loops in this file; more take tiles, or BLAS
WORTH_IT = 2**15  # the smallest right matrix that is shared between threads, in entries
WORTH_A_COPY = 12  # products of a matrix, after which a copy of it in panels has paid off
PIECES = 8  # the most that a job has; smaller pieces of a matrix would be slower to read
PIECE_SIZE = 2**18  # the fewest bytes of the right matrix in each of more than two pieces
JIT = not numba.config.DISABLE_JIT  # without it, BLAS multiplies
SPINS = 2**22  # how often a helper without work checks for it before it goes to sleep: about two milliseconds
PATIENCE = 2**12  # how often a thread checks what it waits for before it gives way to others
ALONE = 0.1  # seconds for which a thread works without helpers after another program has had its core

# The board is an array through which threads share work. These are the positions of its words. Words that different
# threads write are a cache line (8 words) apart.
LEFT = 0  # the number of pieces that no thread has taken, or less than 0
UNDONE = 8  # the number of unfinished pieces
AWAKE = 16  # how many helpers are spinning
HELPERS = 24  # how many helpers may work
DISMISSED = 25  # whether all have to end
PIECE = 32  # the address of the function that computes a piece
JOB = 40  # its first argument, from this position on
JOB_TYPE = numba.types.UniTuple(numba.int64, 16)  # of which the first is the number of pieces
board = np.zeros(JOB + 16, np.int64)
ADDRESS = board.ctypes.data

_yield = ctypes.CDLL("kernel32").SwitchToThread if sys.platform == "win32" else ctypes.CDLL(None).sched_yield
binding.add_symbol("npformer_give_way", ctypes.cast(_yield, ctypes.c_void_p).value)
give_way = numba.types.ExternalFunction("npformer_give_way", numba.int32())  # lets other threads have the core


def helper_for(dtype, of_matrix=None):
    """The first argument of ``multiply_few_rows`` for these dtypes; wakes helpers inside ``kernel_threads``.

    Only one thread at a time may use several, and so has the board; it is 0 for others.
    """
    if not JIT:
        return 0, 0
    n = min(n_kernel_threads(), PIECES) - 1
    if n > 0:
        n = 0 if _cores_are_taken() else n
        board[HELPERS] = n
        call_helpers(n, _help, n_at_work=int(board[AWAKE]))
    return ADDRESS if n > 0 else 0, _address_of_piece(dtype, of_matrix or dtype)


def _help():
    if not board[DISMISSED]:
        _serve(ADDRESS)


def _cores_are_taken():
    """Whether another program has just had this thread's core: a helper would lose its own in the middle of a piece."""
    now, n = time.monotonic(), n_preemptions()
    if n != _latest.n_preemptions:
        _latest.n_preemptions, _latest.time = n, now
    return now < _latest.time + ALONE


def n_preemptions():
    """How often this thread had to give its core to another program; 0 where the system does not say."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw if hasattr(resource, "RUSAGE_THREAD") else 0


class _Latest(threading.local):
    """When this thread has seen for the last time that it had lost its core, and how often that had been."""

    def __init__(self):
        self.n_preemptions, self.time = n_preemptions(), -math.inf


_latest = _Latest()


@in_forked_process
def _reset_in_fork():
    """Start without helpers in a forked process, which does not have them."""
    board[:] = 0


@atexit.register
def _dismiss():
    """Wait until all helpers have left, before the interpreter frees the memory that they read."""
    board[DISMISSED] = 1
    while board[AWAKE] > 0:
        time.sleep(0)


def panels_of(matrices, max_rows, n_steps):
    """``columns_in_panels`` for that many products of up to ``max_rows`` rows; empty if a copy does not pay off."""
    if COPIED and THIN < max_rows <= 2 * FEW_ROWS and n_steps >= WORTH_A_COPY:
        return columns_in_panels(matrices)
    return [np.empty(0, x.dtype) for x in matrices]


@inlined
def multiply_few_rows(helper, blas, a, b, panels, out):
    """out = a b, where the rows of a and of out are contiguous, and b or its transpose is, which is given if b is int8.

    ``panels`` has the columns of b as ``columns_in_panels`` copies them, or nothing.

    If a has only a few rows, the product is shared with the helpers that are awake. A piece is a range of columns of b,
    or, if a has very few rows, a range of rows of b, so that each thread reads one contiguous part of memory. The
    pieces do not depend on how many helpers are awake, so the result is always the same.
    """
    board, address = helper
    (m, k), n = a.shape, out.shape[1]
    of_integers, small, of_panels = b.itemsize == 1, k * n < WORTH_IT, len(panels) > 0 and m > THIN
    by_rows = b.strides[1] == b.itemsize and not of_integers
    thin, narrow = by_rows and m <= THIN, by_rows and m > THIN and n < 2 * COLUMNS
    by_blas = m > FEW_ROWS or (not of_panels and (small or narrow))
    if not JIT or (not of_integers and by_blas):
        multiply(blas, a, b, out, False)
        return
    most, pieces = min(k * n * b.itemsize // PIECE_SIZE, k // 128 if thin else n // 64), PIECES
    while pieces > max(2, most):  # 8, 4 or 2, which two threads share evenly
        pieces //= 2
    sums = np.empty((pieces, m, n), a.dtype) if thin else np.empty((0, 0, 0), a.dtype)
    tiled = of_panels or (by_rows and not thin and m <= TILED)
    rows = rows_in_panels(a) if tiled else np.empty((0, 0), a.dtype)
    a_step = max(a.strides[0] // a.itemsize, k)  # a single row may have any stride
    left = (place(rows), *rows.shape) if tiled else (place(a), m, a_step)
    b_step = max((b.strides[0] if by_rows or of_integers else b.strides[1]) // b.itemsize, n if by_rows else k)
    right = (place(panels), len(panels)) if of_panels else (place(b), b_step)
    result = place(sums) if thin else place(out), n if thin else max(out.strides[0] // out.itemsize, n)
    how = np.int64(by_rows), np.int64(of_panels), np.int64(blas[0]), np.int64(blas[1])
    job = (pieces, m, k, n, *left, *right, *result, *how, np.int64(tiled))  # a job has 16 numbers
    _share_and_keep(0 if small else board, address, job, rows)
    if thin:
        _add_up(sums, out)


@inlined
def _share_and_keep(board, address, job, array):
    """``share`` a job that has the address of an array, which numba would free after its last use."""
    share(board, address, job)


@inlined
def share(board, address, job):
    """Call the function at the address for each piece of a job, together with the helpers that are awake."""
    if board == 0:
        for piece in range(job[0]):
            call(address, job, piece)
        return
    swap(board + 8 * PIECE, address)
    for i in range(len(job)):
        swap(board + 8 * (JOB + i), job[i])
    swap(board + 8 * UNDONE, job[0])
    swap(board + 8 * LEFT, job[0])  # from here on pieces are taken
    while _take_a_piece(board):
        pass
    waited = 0
    while load(board + 8 * UNDONE) > 0:
        waited = _wait(waited)


@inlined
def _add_up(sums, out):
    for r in range(len(out)):
        for j in range(out.shape[1]):
            out[r, j] = sums[0, r, j]
        for piece in range(1, len(sums)):
            add_multiple(like(sums[0, 0, 0], 1), sums[piece, r], out[r])


@kernel
def _serve(board):
    """Compute pieces of the jobs on the board, until there has been none for a while or fewer helpers may work."""
    add_to(board + 8 * AWAKE, 1)
    idle = 0
    while idle < SPINS and load(board + 8 * HELPERS) >= load(board + 8 * AWAKE) and load(board + 8 * DISMISSED) == 0:
        idle = 0 if _take_a_piece(board) else _wait(idle)
    add_to(board + 8 * AWAKE, -1)


@inlined
def _wait(n):
    """n + 1, if n is how often a busy loop has found nothing. Sometimes lets other threads have the core."""
    if n % PATIENCE == PATIENCE - 1:
        give_way()
    return n + 1


@inlined
def _take_a_piece(board):
    """Compute a piece of the job on the board. Returns False if no piece is left."""
    if load(board + 8 * LEFT) <= 0:
        return False
    n = add_to(board + 8 * LEFT, -1) - 1
    if n < 0:
        return False
    at = board + 8 * JOB  # the job does not change until the piece taken here is done
    job = (
        load(at), load(at + 8), load(at + 16), load(at + 24), load(at + 32), load(at + 40), load(at + 48),
        load(at + 56), load(at + 64), load(at + 72), load(at + 80), load(at + 88), load(at + 96), load(at + 104),
        load(at + 112), load(at + 120),
    )  # fmt: skip
    call(load(board + 8 * PIECE), job, n)
    add_to(board + 8 * UNDONE, -1)
    return True


@cache
def _address_of_piece(number, of_matrix):
    """The address of ``piece(job, n)``, which computes the n-th piece of a product of matrices of these numbers.

    The kernels that multiply call it by its address, so it is not compiled again into each of them.
    """

    def piece(job, n):
        pieces, m, k, columns, a, n_left, a_step, b, b_step, out, out_step = job[:11]
        by_rows, of_panels, address, wide, tiled = job[11:]
        a = numba.carray(pointer(a), (n_left, a_step), number)  # rows, or panels of rows if it is tiled
        first, last = columns * n // pieces // 64 * 64, columns * (n + 1) // pieces // 64 * 64
        last = columns if n + 1 == pieces else last
        if of_panels:
            panels, out = numba.carray(pointer(b), (b_step,), number), numba.carray(pointer(out), (m, out_step), number)
            multiply_panels(a, panels, out, k, columns, first, last)
            return
        b = numba.carray(pointer(b), (k if by_rows else columns, b_step), of_matrix)
        if by_rows and m <= THIN:
            sums = numba.carray(pointer(out), (pieces, m, columns), number)
            _add_rows(a, b, sums[n], k * n // pieces, k * (n + 1) // pieces)
            return
        out = numba.carray(pointer(out), (m, out_step), number)
        if tiled:
            multiply_columns(a, b, out, first, last)
        elif by_rows:
            multiply((address, wide), a[:, :k], b[:, first:last], out[:, first:last], False)
        else:
            multiply_transposed(a[:, :k], b[:, :k], out, first, last)

    return address_of(piece, numba.void(JOB_TYPE, numba.int64))


@inlined
def _add_rows(a, b, out, first, last):
    """out = a[:, first:last] b[first:last], eight rows of b at a time, far apart: as in ``dots``, that is faster."""
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
    x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    for j in range(len(out)):
        total = x0 * b[0, j] + x1 * b[1, j] + x2 * b[2, j] + x3 * b[3, j]
        out[j] += total + x4 * b[4, j] + x5 * b[5, j] + x6 * b[6, j] + x7 * b[7, j]


@inlined
def add_multiple(x, b, out):
    """out += x b, of two rows."""
    for j in range(len(out)):
        out[j] += x * b[j]


@inlined
def place(x):
    """The address of an array, as a number of a job."""
    return np.int64(x.ctypes.data)


@intrinsic
def pointer(typing_context, address):
    """The pointer with this integer as its address."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return numba.types.voidptr(numba.int64), generate


@intrinsic
def call(typing_context, address, job, n):
    """Call the function at this address."""

    def generate(context, builder, signature, arguments):
        address, job, n = arguments
        function = ir.FunctionType(ir.VoidType(), [job.type, n.type])
        builder.call(builder.inttoptr(address, function.as_pointer()), [job, n])
        return context.get_dummy_value()

    return numba.void(numba.int64, job, numba.int64), generate


@intrinsic
def load(typing_context, address):
    """Read a word atomically, so that what other threads have written is seen."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(_word(builder, arguments[0]), "seq_cst", 8)

    return numba.int64(numba.int64), generate


def _atomic(operation):
    """A function that changes a word by a value and returns its old value, atomically.

    Other threads see the new word, and everything that was written before it.
    """

    @intrinsic
    def change(typing_context, address, value):
        def generate(context, builder, signature, arguments):
            return builder.atomic_rmw(operation, _word(builder, arguments[0]), arguments[1], "seq_cst")

        return numba.int64(numba.int64, numba.int64), generate

    return change


def _word(builder, address):
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


add_to, swap = _atomic("add"), _atomic("xchg")
