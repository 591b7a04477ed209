"""From token ids to vectors."""

from npformer.reference.arrays import Array, namespace, narrow, widen
from npformer.reference.checks import check_ids, check_shape


def embedding(ids: Array, table: Array) -> Array:
    """Row ``ids[b, t]`` of the table at position (b, t).

    Parameters
    ----------
    ids : (B, T) int, or any shape
    table : (V, D)

    Returns
    -------
    (B, T, D)

    Raises
    ------
    TypeError
        If ids are not integers.
    ValueError
        If an id is negative or not below V: NumPy would wrap the first around.

    Examples
    --------
    >>> import numpy as np
    >>> embedding(np.array([2, 0]), np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
    array([[4., 5.],
           [0., 1.]])
    """
    namespace(table=table)
    if table.ndim != 2:
        raise ValueError(f"table has shape {table.shape}, expected (V, D)")
    check_ids(ids, table.shape[0], "ids")
    return table[ids]


def embedding_backward(dy: Array, ids: Array, table_shape: tuple[int, int]) -> Array:
    """dtable: each row the sum of dy over the places that looked it up, in order, so the same bits every time."""
    xp = namespace(dy=dy)
    check_ids(ids, table_shape[0], "ids")
    check_shape(dy=(dy, (*ids.shape, table_shape[1])))
    wide = widen(dy)
    dtable = xp.zeros(table_shape, wide.dtype)
    xp.add.at(dtable, ids, wide)
    return narrow(dtable, dy)
