"""From token ids to vectors: rows of the table are copied; the backward pass adds up rows in the
order of the ids.
"""

import cupy

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.dropout import drawing
from npformer.gpu.launch import THREADS, for_each_row, launch, real
from npformer.reference.math.embedding import scale_of

NO_PADDING = -1


@kernel_of(reference.embedding)
def embedding(ids, table):
    return _embed(ids, table, None, 1, NO_PADDING, 1.0, 0.0, None)


@kernel_of(reference.embedding_backward)
def embedding_backward(dy, ids, table_shape):
    return _embed_backward(dy, ids, table_shape, NO_PADDING, 1.0, 0.0, None)


@kernel_of(reference.embed_tokens)
def embed_tokens(ids, table, positions, pad_id, dropout_rate, dropout_key, scaled):
    scale = scale_of(table.shape, scaled)
    return _embed(ids, table, positions, ids.shape[-1], pad_id, scale, dropout_rate, dropout_key)


@kernel_of(reference.embed_tokens_backward)
def embed_tokens_backward(dy, ids, table_shape, pad_id, dropout_rate, dropout_key, scaled):
    return _embed_backward(
        dy, ids, table_shape, pad_id, scale_of(table_shape, scaled), dropout_rate, dropout_key
    )


def _embed(ids, table, positions, length, pad_id, scale, dropout_rate, dropout_key):
    n, dtype = table.shape[1], table.dtype
    y = cupy.empty((*ids.shape, n), dtype)
    numbers = n, length, pad_id, real(dtype).type(scale), *drawing(dropout_rate, dropout_key, dtype)
    for_each_row("embedding", "embed", dtype, ids.size, ids, table, positions, y, *numbers)
    return y


def _embed_backward(dy, ids, table_shape, pad_id, scale, dropout_rate, dropout_key):
    (n_ids, n), dtype = table_shape, dy.dtype
    dtable = cupy.empty((n_ids, n), dtype)
    numbers = (
        ids.size,
        n,
        pad_id,
        real(dtype).type(scale),
        *drawing(dropout_rate, dropout_key, dtype),
    )
    grid = n_ids, -(-n // THREADS)
    launch("embedding", "embed_backward", dtype, grid, (THREADS,), dy, ids, dtable, *numbers)
    return dtable
