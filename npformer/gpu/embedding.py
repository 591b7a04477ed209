"""From token ids to vectors: rows are copied, and in the backward pass added, in the order of the ids."""

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.arrays import as_rows, contiguous, size_of, suit
from npformer.gpu.dropout import drawing
from npformer.gpu.launch import THREADS, for_each_row, launch, real
from npformer.reference.checks import check_ids, check_rate

NO_PADDING = -1


def embedding(ids, table):
    """As ``reference.embedding``."""
    if not (_are_ids(ids) and suit(table) and table.ndim == 2):
        return reference.embedding(ids, table)
    check_ids(ids, len(table), "ids")
    return _embed(ids, table, None, 1, NO_PADDING, 1.0, 0.0, None)


def embedding_backward(dy, ids, table_shape):
    """As ``reference.embedding_backward``."""
    if not _fits_backward(dy, ids, table_shape):
        return reference.embedding_backward(dy, ids, table_shape)
    return _embed_backward(dy, ids, table_shape, NO_PADDING, 1.0, 0.0, None)


def embed_tokens(ids, table, positions, pad_id, rate=0.0, key=None):
    """As ``reference.embed_tokens``."""
    check_rate(rate, key)
    positions = positions.astype(table.dtype, copy=False)
    fits = _are_ids(ids) and ids.ndim > 0 and suit(table, positions) and table.ndim == 2
    if not fits or positions.shape != (ids.shape[-1], table.shape[1]):
        return reference.embed_tokens(ids, table, positions, pad_id, rate, key)
    check_ids(ids, len(table), "ids")
    return _embed(ids, table, contiguous(positions), ids.shape[-1], pad_id, table.shape[1] ** 0.5, rate, key)


def embed_tokens_backward(dy, ids, table_shape, pad_id, rate=0.0, key=None):
    """As ``reference.embed_tokens_backward``."""
    check_rate(rate, key)
    if not _fits_backward(dy, ids, table_shape):
        return reference.embed_tokens_backward(dy, ids, table_shape, pad_id, rate, key)
    return _embed_backward(dy, ids, table_shape, pad_id, table_shape[1] ** 0.5, rate, key)


def _embed(ids, table, positions, length, pad_id, scale, rate, key):
    n, dtype = table.shape[1], table.dtype
    y = cupy.empty((*ids.shape, n), dtype)
    numbers = *size_of(n, length, pad_id), real(dtype).type(scale), *drawing(rate, key, dtype)
    for_each_row("embedding", "embed", dtype, ids.size, _flat(ids), contiguous(table), positions, y, *numbers)
    return y


def _embed_backward(dy, ids, table_shape, pad_id, scale, rate, key):
    (n_ids, n), dtype = table_shape, dy.dtype
    dtable = cupy.empty((n_ids, n), dtype)
    numbers = *size_of(ids.size, n, pad_id), real(dtype).type(scale), *drawing(rate, key, dtype)
    grid = n_ids, -(-n // THREADS)
    launch("embedding", "embed_backward", dtype, grid, (THREADS,), as_rows(dy), _flat(ids), dtable, *numbers)
    return dtable


def _fits_backward(dy, ids, table_shape):
    if not (_are_ids(ids) and suit(dy) and dy.shape == (*ids.shape, table_shape[1])):
        return False
    check_ids(ids, table_shape[0], "ids")
    return True


def _are_ids(ids):
    return isinstance(ids, cupy.ndarray) and ids.dtype.kind in "iu" and ids.size > 0


def _flat(ids):
    return contiguous(ids.astype(np.int64, copy=False)).reshape(-1)
