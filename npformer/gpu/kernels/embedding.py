"""From token ids to vectors: ``reference.embedding``, ``embed_tokens`` and their backward passes.

Scale, position and dropout are applied to a row of the table while it is copied. The backward pass
adds up rows in the order of the ids, so that its bits are always the same.
"""

import cupy

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.dropout import dropout_arguments
from npformer.gpu.launch import THREADS, cuda_kernel, real, row_kernel
from npformer.reference.math.embedding import embedding_scale

NO_PADDING = -1


@kernel_of(reference.embedding)
def embedding(ids, table):
    return embed_tokens(ids, table, None, NO_PADDING, 0.0, None, scaled=False)


@kernel_of(reference.embedding_backward)
def embedding_backward(dy, ids, table_shape):
    return embed_tokens_backward(dy, ids, table_shape, NO_PADDING, 0.0, None, scaled=False)


@kernel_of(reference.embed_tokens)
def embed_tokens(ids, table, positions, pad_id, dropout_rate, dropout_key, scaled):
    n = table.shape[1]
    length = ids.shape[-1] if ids.ndim else 1
    dtype = table.dtype
    y = cupy.empty((*ids.shape, n), dtype)
    scale = real(dtype).type(embedding_scale(table.shape, scaled))
    drop = dropout_arguments(dropout_rate, dropout_key, dtype)
    kernel = row_kernel("embedding", "embed", dtype, ids.size)
    # embed(ids, table, positions, y, n, length, pad_id, scale, key, threshold, kept_scale)
    kernel(ids, table, positions, y, n, length, pad_id, scale, *drop)
    return y


@kernel_of(reference.embed_tokens_backward)
def embed_tokens_backward(dy, ids, table_shape, pad_id, dropout_rate, dropout_key, scaled):
    n_ids, n = table_shape
    dtype = dy.dtype
    dtable = cupy.empty((n_ids, n), dtype)
    scale = real(dtype).type(embedding_scale(table_shape, scaled))
    drop = dropout_arguments(dropout_rate, dropout_key, dtype)
    grid = (n_ids, -(-n // THREADS))
    kernel = cuda_kernel("embedding", "embed_backward", dtype, grid, (THREADS,))
    # embed_backward(dy, ids, dtable, n_tokens, n, pad_id, scale, key, threshold, kept_scale)
    kernel(dy, ids, dtable, ids.size, n, pad_id, scale, *drop)
    return dtable
