"""From token ids to vectors: rows are copied, and in the backward pass added, in the order of the ids."""

import numpy as np

from npformer import reference
from npformer.cpu.arrays import IDS, as_rows, suit
from npformer.cpu.dropout import drawing
from npformer.cpu.jit import kernel
from npformer.cpu.memory import empty, zeros
from npformer.cpu.scalar import is_kept, like
from npformer.reference.checks import check_rate


def embedding(ids, table):
    """As ``reference.embedding``."""
    if not (_are_ids(ids) and suit(table) and table.ndim == 2 and _in_range(ids, len(table))):
        return reference.embedding(ids, table)
    return np.take(table, ids, axis=0)


def embedding_backward(dy, ids, table_shape):
    """As ``reference.embedding_backward``."""
    if not _fits_backward(dy, ids, table_shape):
        return reference.embedding_backward(dy, ids, table_shape)
    dtable = zeros(table_shape, dy.dtype)
    _add_rows(as_rows(dy), _flat(ids), dtable)
    return dtable


def embed_tokens(ids, table, positions, pad_id, rate=0.0, key=None):
    """As ``reference.embed_tokens``."""
    check_rate(rate, key)
    fits = _are_ids(ids) and suit(table, positions) and table.ndim == 2 and ids.ndim > 0 and _in_range(ids, len(table))
    if not fits or type(pad_id) is not int or positions.shape != (ids.shape[-1], table.shape[1]):
        return reference.embed_tokens(ids, table, positions, pad_id, rate, key)
    y = empty((*ids.shape, table.shape[1]), table.dtype)
    scale = table.dtype.type(table.shape[1] ** 0.5)
    table, positions = np.ascontiguousarray(table), np.ascontiguousarray(positions)
    _embed(_flat(ids), table, positions, np.int64(pad_id), scale, as_rows(y), *drawing(rate, key, y.dtype))
    return y


def embed_tokens_backward(dy, ids, table_shape, pad_id, rate=0.0, key=None):
    """As ``reference.embed_tokens_backward``."""
    check_rate(rate, key)
    if not _fits_backward(dy, ids, table_shape) or type(pad_id) is not int:
        return reference.embed_tokens_backward(dy, ids, table_shape, pad_id, rate, key)
    dtable = zeros(table_shape, dy.dtype)
    scale = dy.dtype.type(table_shape[1] ** 0.5)
    _embed_backward(as_rows(dy), _flat(ids), np.int64(pad_id), scale, dtable, *drawing(rate, key, dy.dtype))
    return dtable


def _fits_backward(dy, ids, table_shape):
    return _are_ids(ids) and suit(dy) and dy.shape == (*ids.shape, table_shape[1]) and _in_range(ids, table_shape[0])


def _are_ids(ids):
    return type(ids) is np.ndarray and ids.dtype in IDS and ids.size > 0


def _in_range(ids, size):
    return ids.min() >= 0 and ids.max() < size


def _flat(ids):
    return np.ascontiguousarray(ids).reshape(-1)


@kernel
def _add_rows(dy, ids, dtable):
    n, D = dy.shape
    for i in range(n):
        row = dtable[ids[i]]
        for j in range(D):
            row[j] += dy[i, j]


@kernel
def _embed(ids, table, positions, pad_id, scale, y, draw, factor):
    n, D = y.shape
    for i in range(n):
        if ids[i] == pad_id:
            y[i, :] = like(scale, 0)
            continue
        word, position = table[ids[i]], positions[i % len(positions)]
        for j in range(D):
            x = (word[j] * scale + position[j]) * factor
            y[i, j] = x if is_kept(i * D + j, draw) else like(scale, 0)


@kernel
def _embed_backward(dy, ids, pad_id, scale, dtable, draw, factor):
    n, D = dy.shape
    for i in range(n):
        if ids[i] == pad_id:
            continue
        row = dtable[ids[i]]
        for j in range(D):
            row[j] += dy[i, j] * (scale * factor) if is_kept(i * D + j, draw) else like(scale, 0)
