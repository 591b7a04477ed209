"""Sums of many numbers, in blocks.

A sum that takes one number after the other loses digits: it rounds to the size of what has been
added up so far. The sum of a block is small, so it rounds little, and there are fewer sums of
blocks than numbers. The blocks depend on the shape alone, so the bits of a sum do not depend on
threads.

The rows of a matrix are added up as an odometer counts: 16 rows to the first of four sums, 16 of
its values to the second, and so on. The entries of one row are added up in blocks of 1,024. A
kernel that computes the entries while it adds them up has a loop over each ``block`` itself.
"""

import numpy as np

from npformer.cpu.jit import inlined
from npformer.cpu.scalar import like

ROWS_PER_SUM = 16
LEVELS = 4
# Entries of a row: 16 for each of the 64 sums that a loop with vectors of 16 floats computes side
# by side.
BLOCK = 1024


@inlined
def start(total):
    """The sums (levels, D) of no rows yet. A row is added to the first of them."""
    # Numba would compile np.zeros as a function of its own.
    sums = np.empty((LEVELS, total.size), total.dtype)
    sums[:] = 0
    return sums


@inlined
def carry(sums, n_rows):
    """To be called after each row, when ``n_rows`` have been added."""
    # It is ROWS_PER_SUM ** (level + 1), without a power, which would be compiled, too.
    n_carried = ROWS_PER_SUM
    for level in range(LEVELS - 1):
        if n_rows % n_carried != 0:
            break
        n_carried *= ROWS_PER_SUM
        for j in range(sums.shape[1]):
            sums[level + 1, j] += sums[level, j]
            sums[level, j] = 0


@inlined
def finish(sums, total):
    """Write the sum of all rows."""
    for j in range(total.size):
        total[j] = sums[0, j] + sums[1, j] + sums[2, j] + sums[3, j]


@inlined
def add_rows(x, total):
    """total = Σ x over the rows of a matrix."""
    sums = start(total)
    for i in range(len(x)):
        for j in range(total.size):
            sums[0, j] += x[i, j]
        carry(sums, i + 1)
    finish(sums, total)


@inlined
def block(first, n):
    """The indices of a block of n numbers, of which ``first`` is the first.

    They are unsigned: LLVM does not vectorise a loop in which numba has to check whether an index
    is negative.
    """
    return range(np.uint64(first), np.uint64(min(first + BLOCK, n)))


@inlined
def sum_of(x):
    """Σ x of a row."""
    total = like(x[0], 0)
    for first in range(0, x.size, BLOCK):
        part = like(x[0], 0)
        for j in block(first, x.size):
            part += x[j]
        total += part
    return total


@inlined
def sum_of_products(x, y):
    """Σ x y of two rows."""
    total = like(x[0], 0)
    for first in range(0, x.size, BLOCK):
        part = like(x[0], 0)
        for j in block(first, x.size):
            part += x[j] * y[j]
        total += part
    return total
