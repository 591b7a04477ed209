"""From token ids to vectors.

The table has a row of width D for each of V ids. Ids of any shape become vectors of width D in its
place; in the backward pass, the gradients of all places with the same id are added.
"""

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation
from npformer.reference.math.dropout import dropout, dropout_backward


@operation("ids: ... ids<V, table: V D -> y: ... D")
def embedding(ids: Array, table: Array) -> Array:
    """Look up the row of each id in the table: ``y[b, t] = table[ids[b, t]]``.

    A TypeError is raised if ids are not integers, a UserError if one is negative or not below V.
    (NumPy would take a negative id as counted from the end.)

    >>> embedding(np.array([2, 0]), np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
    array([[4., 5.],
           [0., 1.]])
    """
    return table[ids]


@backward_of(embedding, "dy: ... D, ids: ... ids<V, table_shape = V D -> dtable: V D")
def embedding_backward(dy: Array, ids: Array, table_shape: tuple[int, int]) -> Array:
    """dtable: each row is the sum of dy over the positions with its id, in a fixed order, hence
    reproducible.

    >>> dy = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    >>> embedding_backward(dy, ids=np.array([2, 0, 2]), table_shape=(3, 2))  # id 2 occurs twice
    array([[ 2., 20.],
           [ 0.,  0.],
           [ 4., 40.]])
    """
    dtable = np.zeros_like(dy, shape=table_shape)
    np.add.at(dtable, ids, dy)  # dtable[ids] += dy would add one row alone of each id
    return dtable


@operation("ids: ... T ids<V, table: V D, positions: T D wide -> y: ... T D")
def embed_tokens(
    ids: Array,
    table: Array,
    positions: Array | None,
    pad_id: int,
    dropout_rate: float = 0.0,
    dropout_key: int | None = None,
    *,
    scaled: bool = True,
) -> Array:
    """dropout(√D · table[id] + position), and exact zeros where the id is padding (section 3.4).

    The result does not depend on the row of the table that belongs to the padding.
    ``positions=None`` adds nothing.

    Parameters
    ----------
    pad_id
        -1 if no id is padding.
    scaled
        False: without the factor √D, as in GPT-2, Llama and BERT.

    >>> table, positions = np.array([[np.nan], [2.0], [3.0]]), np.array([[0.1], [0.2], [0.3]])
    >>> embed_tokens(np.array([[2, 1, 0]]), table, positions, pad_id=0)[..., 0]
    array([[3.1, 2.2, 0. ]])
    """
    x = embedding(ids, table) * embedding_scale(table.shape, scaled)
    if positions is not None:
        x = x + positions
    x = np.where((ids == pad_id)[..., None], 0, x)  # the embedding of padding may be NaN
    return dropout(x, dropout_rate, dropout_key)


@backward_of(embed_tokens, "dy: ... D, ids: ... ids<V, table_shape = V D -> dtable: V D")
def embed_tokens_backward(
    dy: Array,
    ids: Array,
    table_shape: tuple[int, int],
    pad_id: int,
    dropout_rate: float = 0.0,
    dropout_key: int | None = None,
    *,
    scaled: bool = True,
) -> Array:
    """dtable; its row of the padding is 0.

    >>> ids = np.array([[2, 1, 2, 0]])
    >>> dy = np.ones((1, 4, 4))  # √D = 2, and id 2 occurs twice
    >>> embed_tokens_backward(dy, ids, table_shape=(3, 4), pad_id=0)
    array([[0., 0., 0., 0.],
           [2., 2., 2., 2.],
           [4., 4., 4., 4.]])
    """
    dx = dropout_backward(dy, dropout_rate, dropout_key)
    dx = np.where((ids == pad_id)[..., None], 0, dx)
    dx = dx * embedding_scale(table_shape, scaled)
    return embedding_backward(dx, ids, table_shape)


def embedding_scale(table_shape, scaled):
    """The factor of the embeddings: √D, or 1."""
    _, D = table_shape
    return D**0.5 if scaled else 1.0
