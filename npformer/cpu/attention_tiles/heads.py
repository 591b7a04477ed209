"""The matrices of heads, which lie anywhere, and their copies, whose rows lie side by side."""

from typing import NamedTuple

import numpy as np

from npformer.cpu.jit import inlined
from npformer.cpu.rows import contiguous
from npformer.cpu.scalar import like


class Heads(NamedTuple):
    """What attention reads and writes, (B, H or G, T or S, width), or the gradients of it: arrays
    of any layout, in which each row is contiguous.

    H heads of queries and outputs may share G heads of keys and values, H / G each.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    out: np.ndarray


def as_heads(x):
    """(..., T, K) as (B, H, T, K), in which the rows of each head are contiguous."""
    row_step = x.strides[-2]
    if x.strides[-1] != x.itemsize or row_step < x.shape[-1] * x.itemsize:
        x = np.ascontiguousarray(x)
    if x.ndim == 4:
        return x
    return x[(None,) * (4 - x.ndim)] if x.ndim < 4 else x.reshape(-1, *x.shape[-3:])


@inlined
def copy_rows(x, out):
    """The rows of x to those of ``out``, as many and as long as both have."""
    for i in range(min(len(x), len(out))):
        row = contiguous(x[i])
        to = contiguous(out[i])
        for c in range(min(len(row), len(to))):
            to[c] = row[c]


@inlined
def copy_without_nan(x, tile):
    """``copy_rows``, with 0 for NaN: in place of NaN that no query sees, which the reference would
    have to handle. The gradients of the scores of a key that some query sees are NaN, too.
    """
    for i in range(len(x)):
        row = contiguous(x[i])
        to = tile[i]
        for c in range(len(row)):
            to[c] = row[c] if row[c] == row[c] else like(row[c], 0)


@inlined
def copy_columns(x, tile):
    """The rows of an array to the columns of a tile."""
    for i in range(len(x)):
        row = contiguous(x[i])
        for c in range(len(row)):
            tile[c, i] = row[c]


@inlined
def fetch(arrays, b):
    """Read sequence b of each of these arrays (B, H, T, K), all heads of one position before those
    of the next, so that the copies of its heads find it in the cache.

    In a model the heads of a position lie side by side. The processor prefetches well in this
    order, but not if the short rows of one head, which are far apart, are read before those of
    another. This is for sequences whose queries fit in one tile: a longer one would not stay in the
    cache until its last head. The result has no meaning, but it has to be written somewhere:
    otherwise LLVM would leave out the reads.
    """
    total = arrays[0][b, 0, 0, 0]
    for x in arrays:
        for t in range(x.shape[2]):
            for h in range(x.shape[1]):
                for c in range(0, x.shape[3], 16):
                    total += x[b, h, t, c]
    return total


@inlined
def edges_are_finite(product):
    """Whether no factor of this matrix product holds NaN or inf.

    In the left factor it makes a whole row of the product NaN or inf, in the right factor a whole
    column. So it is enough to check the first column and the first row.
    """
    n_wrong = 0
    for i in range(product.shape[0]):
        n_wrong += not np.isfinite(product[i, 0])
    for j in range(product.shape[1]):
        n_wrong += not np.isfinite(product[0, j])
    return n_wrong == 0
