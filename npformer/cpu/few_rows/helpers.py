"""Helper threads that share work of some microseconds.

Most of the time of a product of few rows is spent on reading the matrix. One core cannot read
memory as fast as several can, and the threads of BLAS copy such a matrix before they multiply by
it. So helper threads wait for pieces of a job in a busy loop (they spin), since a product may take
only 50 microseconds. The calling thread does not wait for helpers to wake up: each thread that is
free takes the next piece, so without helpers the caller computes all of them. It does wait for
pieces that helpers have taken. While threads wait they give way to others now and then: to
programs, and to helpers that lost their core in the middle of a piece. The helpers go to sleep soon
after the last job, and leave the loop when other work calls them (``threads.spinning_limit``).
"""

import atexit
import ctypes
import sys
import time

import numba
import numpy as np
from llvmlite import binding

from npformer.cpu.few_rows.atomics import add_to, load, swap
from npformer.cpu.few_rows.records import call, stored
from npformer.cpu.jit import inlined, kernel
from npformer.runtime.forks import in_forked_process
from npformer.runtime.preemptions import cores_are_taken
from npformer.runtime.threads import call_helpers, n_kernel_threads, spinning_limit

PIECES = 8  # the most that a job has; smaller pieces of a matrix would be slower to read
JIT = not numba.config.DISABLE_JIT  # without it there are no helpers
# How often a helper looks for work before it goes to sleep: on an idle core about two milliseconds.
# Beside busy programs it takes seconds, in which it gives way and hardly computes.
SPINS = 2**22
PATIENCE = 2**12  # how often a thread checks what it waits for before it gives way to others

# The board is an array through which threads share work. These are the positions of its words.
# Words that different threads write are a cache line (8 words) apart.
LEFT = 0  # the number of pieces that no thread has taken, or less than 0
UNDONE = 8  # the number of unfinished pieces
AWAKE = 16  # how many helpers are spinning
DISMISSED = 24  # whether all have to end
FUNCTION = 32  # the address of the function that computes a piece
JOB = 33  # the address of the job, which lies on the stack of the thread that waits for the pieces
board = np.zeros(40, np.int64)
ADDRESS = board.ctypes.data
LIMIT_ADDRESS = ctypes.addressof(spinning_limit)

if sys.platform == "win32":
    _yield = ctypes.CDLL("kernel32").SwitchToThread
else:
    _yield = ctypes.CDLL(None).sched_yield
binding.add_symbol("npformer_give_way", ctypes.cast(_yield, ctypes.c_void_p).value)
# Lets other threads have the core.
give_way = numba.types.ExternalFunction("npformer_give_way", numba.int32())


def board_with_helpers():
    """Wake helpers, and return the address of the board; 0 for a thread that works alone.

    Only one thread at a time may use several, inside ``kernel_threads``, and so has the board.
    """
    n = min(n_kernel_threads(), PIECES) - 1
    if not JIT or n <= 0:
        return 0
    if cores_are_taken():  # a helper would lose its own in the middle of a piece
        spinning_limit.value = 0
        return 0
    spinning_limit.value = n
    call_helpers(n, _become_idle, n_at_work=int(board[AWAKE]))
    return ADDRESS


def _become_idle():
    """Return what a helper does next, when it counts as idle: so other work may call it then."""
    return _look_for_pieces


def _look_for_pieces():
    if not board[DISMISSED]:
        _serve(ADDRESS, LIMIT_ADDRESS)


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


@inlined
def share_pieces(board, function, job):
    """Call ``function(job, piece)`` for each piece of a job, together with awake helpers.

    ``function`` is an address of the type ``PIECE_SIGNATURE``; the job is a record with a field
    ``pieces``.
    """
    address = stored(job)
    if board == 0:
        for piece in range(job.pieces):
            call(function, address, piece)
        return
    swap(board, FUNCTION, function)
    swap(board, JOB, address)
    swap(board, UNDONE, job.pieces)
    swap(board, LEFT, job.pieces)  # from here on pieces are taken
    while _take_a_piece(board):
        pass
    waited = 0
    while load(board, UNDONE) > 0:
        waited = _wait(waited)


@kernel
def _serve(board, limit):
    """Compute pieces of jobs until there has been none for a while, or fewer helpers may work."""
    add_to(board, AWAKE, 1)
    idle = 0
    while idle < SPINS and load(limit, 0) >= load(board, AWAKE):
        if load(board, DISMISSED) != 0:
            break
        idle = 0 if _take_a_piece(board) else _wait(idle)
    add_to(board, AWAKE, -1)


@inlined
def _wait(n):
    """Let other threads have the core now and then; n rounds of a busy loop have found nothing.

    Returns the number with this round.
    """
    if n % PATIENCE == PATIENCE - 1:
        give_way()
    return n + 1


@inlined
def _take_a_piece(board):
    """Compute a piece of the job on the board. Returns False if no piece is left."""
    if load(board, LEFT) <= 0:
        return False
    piece = add_to(board, LEFT, -1) - 1
    if piece < 0:
        return False
    # The job does not change until this piece is done.
    call(load(board, FUNCTION), load(board, JOB), piece)
    add_to(board, UNDONE, -1)
    return True
