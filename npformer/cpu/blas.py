"""Matrix products inside kernels: by BLAS, and by ``team`` if the left matrix has few rows.

A kernel that can multiply does a whole sublayer without going back to Python: threads that compute different parts of
a batch then do not wait for the interpreter's lock between a product and what follows it.
"""

from numba.extending import overload

from npformer.cpu import gemm, team

BLAS = {dtype: (*blas, team.board.ctypes.data) for dtype, blas in gemm.BLAS.items()}


def can_multiply(x):
    """Whether there is a BLAS for arrays like this one; without, the reference multiplies."""
    return BLAS[x.dtype][0] != 0


def multiply(blas, a, b, out, add):
    """out = a b, or out += a b, in a kernel; matrices with one axis contiguous, ``blas`` being ``BLAS[dtype]``."""
    out[...] = out + a @ b if add else a @ b


@overload(multiply)
def _multiply(blas, a, b, out, add):
    by_blas, by_team = gemm.multiply_by_blas, team.multiply_few_rows

    def multiply(blas, a, b, out, add):
        address, wide, board = blas
        if len(a) <= team.MOST_ROWS and b.size >= team.WORTH_IT and a.strides[1] == a.itemsize:
            by_team(board, (address, wide), a, b, out, add)
        else:
            by_blas((address, wide), a, b, out, add)

    return multiply
