"""The words of a board in memory, through which threads agree, without locks: each is read or
changed at once, and a thread that sees the new word sees all that was written before it.
"""

import numba
from numba.extending import intrinsic

from npformer.cpu.llvm import WORD


@intrinsic
def load(typing_context, board, position):
    """Read a word of a board atomically, so that what other threads have written is seen."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(_word(builder, *arguments), "seq_cst", 8)

    return numba.int64(numba.int64, numba.int64), generate


def _atomic(operation):
    """A function that changes a word of a board by a value and returns its old value, atomically.

    Other threads see the new word, and everything that was written before it.
    """

    @intrinsic
    def change(typing_context, board, position, value):
        def generate(context, builder, signature, arguments):
            board, position, value = arguments
            return builder.atomic_rmw(operation, _word(builder, board, position), value, "seq_cst")

        return numba.int64(numba.int64, numba.int64, numba.int64), generate

    return change


add_to = _atomic("add")
swap = _atomic("xchg")


def _word(builder, board, position):
    return builder.gep(builder.inttoptr(board, WORD.as_pointer()), [position])
