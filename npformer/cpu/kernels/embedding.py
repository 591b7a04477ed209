"""From token ids to vectors: ``reference.embedding``, ``embed_tokens`` and their backward passes.

Scale, position and dropout are applied to a row of the table while it is copied. The backward pass
adds up rows in the order of the ids, as NumPy's ``add.at`` does, several times as fast.
"""

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu.backend import kernel_of
from npformer.cpu.draws import dropout_arguments, is_kept
from npformer.cpu.jit import kernel
from npformer.cpu.rows import add_row
from npformer.cpu.scalar import like
from npformer.reference.math.embedding import embedding_scale
from npformer.runtime.memory import empty, zeros


@kernel_of(reference.embedding)
def embedding(ids, table):
    return table.take(ids, axis=0)


@kernel_of(reference.embedding_backward)
def embedding_backward(dy, ids, table_shape):
    dtable = zeros(table_shape, dy.dtype)
    _add_rows(as_rows(dy), ids.reshape(-1), dtable)
    return dtable


@kernel_of(reference.embed_tokens)
def embed_tokens(ids, table, positions, pad_id, dropout_rate, dropout_key, scaled):
    D = table.shape[1]
    x = empty((*ids.shape, D), table.dtype)
    positions = zeros((1, D), x.dtype) if positions is None else positions
    scale = x.dtype.type(embedding_scale(table.shape, scaled))
    dropout = dropout_arguments(dropout_rate, dropout_key, x.dtype)
    _embed(ids.reshape(-1), table, positions, pad_id, scale, dropout, as_rows(x))
    return x


@kernel_of(reference.embed_tokens_backward)
def embed_tokens_backward(dy, ids, table_shape, pad_id, dropout_rate, dropout_key, scaled):
    dtable = zeros(table_shape, dy.dtype)
    scale = dy.dtype.type(embedding_scale(table_shape, scaled))
    dropout = dropout_arguments(dropout_rate, dropout_key, dy.dtype)
    _embed_backward(as_rows(dy), ids.reshape(-1), pad_id, scale, dropout, dtable)
    return dtable


@kernel
def _add_rows(dy, ids, dtable):
    for i in range(len(dy)):
        add_row(dy[i], dtable[ids[i]])


@kernel
def _embed(ids, table, positions, pad_id, scale, dropout, y):
    draw, kept_scale = dropout
    n, D = y.shape
    for i in range(n):
        if ids[i] == pad_id:
            y[i, :] = 0
            continue
        word = table[ids[i]]
        position = positions[i % len(positions)]
        for j in range(D):
            x = (word[j] * scale + position[j]) * kept_scale
            y[i, j] = x if is_kept(i * D + j, draw) else like(scale, 0)


@kernel
def _embed_backward(dy, ids, pad_id, scale, dropout, dtable):
    draw, kept_scale = dropout
    n, D = dy.shape
    for i in range(n):
        if ids[i] == pad_id:
            continue
        row = dtable[ids[i]]
        for j in range(D):
            row[j] += (
                dy[i, j] * (scale * kept_scale) if is_kept(i * D + j, draw) else like(scale, 0)
            )
