"""Attention masks, which are boolean, True = may attend.

A mask broadcasts to the scores, (..., T, S): one for the keys alone is (B, 1, 1, S). Papers add 0
or -inf to the scores instead; ``to_additive`` and ``from_additive`` convert.
"""

import numpy as np

from npformer.arrays import Array
from npformer.checks import check_array, check_int
from npformer.errors import UserError
from npformer.operations.formula import operation
from npformer.operations.shapes import broadcasts_to


def causal_mask(T: int, S: int | None = None, *, like: Array | None = None) -> Array:
    """Mask with which each query attends to the keys up to its own position.

    keep[t, s] = (s <= t + S - T). If S > T, the queries are the last T of S positions, as in
    decoding with a cache of the earlier keys.

    Parameters
    ----------
    T : int
        Number of queries.
    S : int, optional
        Number of keys; T if not given.
    like : array, optional
        The mask is an array of the same library as this one, a NumPy array if not given.

    Returns
    -------
    (T, S) bool

    Examples
    --------
    >>> causal_mask(3)
    array([[ True, False, False],
           [ True,  True, False],
           [ True,  True,  True]])
    """
    T = check_int("T", T, at_least=0)
    S = T if S is None else check_int("S", S, at_least=0)
    like = np.zeros(0) if like is None else like
    query = np.arange(T, like=like)[:, None]
    key = np.arange(S, like=like)
    return is_visible(query, key, T, S)


def is_visible(query, key, T, S):
    """Whether queries at these positions, of T, may attend to the keys at these positions, of S."""
    return key <= query + S - T


def window_mask(
    length: int, window: int, keep_mask: Array | None = None, *, like: Array | None = None
) -> Array:
    """Mask with which each query attends only to keys at a distance below ``window``.

    keep[t, s] = (|t - s| < window). It has the shape (length, length), after the leading axes of a
    ``keep_mask``, which is applied too. As for ``causal_mask``, ``like`` tells the library.

    >>> window_mask(3, 2)
    array([[ True,  True, False],
           [ True,  True,  True],
           [False,  True,  True]])
    """
    like = np.zeros(0) if like is None else like
    at = np.arange(length, like=like)
    near = abs(at[:, None] - at) < window
    if keep_mask is None:
        return near
    check_array(keep_mask, "keep_mask", "mask")
    if not broadcasts_to(keep_mask.shape[-2:], near.shape):
        expected = f"one that broadcasts to (..., {length}, {length})"
        raise UserError(f"keep_mask has shape {keep_mask.shape}, expected {expected}")
    return keep_mask & near


def masked(scores, keep_mask, causal):
    """The scores (..., T, S), with -inf where the query may not attend to the key.

    >>> masked(np.zeros((2, 2)), None, causal=True)
    array([[  0., -inf],
           [  0.,   0.]])
    """
    if keep_mask is not None:
        scores = np.where(keep_mask, scores, -np.inf)
    if causal:
        T, S = scores.shape[-2:]
        scores = np.where(causal_mask(T, S, like=scores), scores, -np.inf)
    return scores


@operation("ids: B S ids -> keep_mask: B 1 1 S mask")
def padding_mask(ids: Array, pad_id: int = 0) -> Array:
    """Mask of the keys that are not padding, in a shape that broadcasts over heads and queries.

    >>> padding_mask(np.array([[5, 3, 0]]))
    array([[[[ True,  True, False]]]])
    """
    return (ids != pad_id)[:, None, None, :]


@operation("keep_mask: ... mask -> mask: ...")
def to_additive(keep_mask: Array, dtype="float32") -> Array:
    """The additive form of a mask, which papers add to the scores: 0 where True, -inf where False.

    >>> to_additive(np.array([True, False]), "float64")
    array([  0., -inf])
    """
    if np.dtype(dtype).kind in "biuSU":
        raise UserError(f"dtype={dtype!r}, expected a float dtype: integers have no -inf")
    return np.where(keep_mask, 0.0, -np.inf).astype(dtype)


@operation("mask: ... -> keep_mask: ... mask")
def from_additive(mask: Array) -> Array:
    """The boolean form of an additive mask; any entry other than 0 and -inf, such as -1e9, is an
    error.

    >>> from_additive(np.array([0.0, -np.inf]))
    array([ True, False])
    """
    keep_mask = mask == 0
    others = mask[~keep_mask & (mask != -np.inf)]
    if others.size:
        expected = "only 0 (may attend) and -inf (may not): try mask > -1e4 as a keep_mask"
        raise UserError(f"mask holds {others.ravel()[0]}, expected {expected}")
    return keep_mask
