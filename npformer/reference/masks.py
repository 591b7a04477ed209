"""Masks: boolean, True = may attend."""

import numpy as np

from npformer.arrays import Array
from npformer.checks import check_int
from npformer.operation import operation


def causal_mask(T: int, S: int | None = None, *, like: Array | None = None) -> Array:
    """Each query sees the keys up to its own position: keep[t, s] = (s <= t + S - T).

    With S > T the queries are the last T of S positions, as in decoding with earlier keys cached.

    Parameters
    ----------
    T : int
        Number of queries.
    S : int, optional
        Number of keys; T if not given.
    like : array, optional
        Where the mask shall be: a NumPy array if not given, else an array of the library of this one.

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
    S = T if S is None else S
    check_int("T", T, at_least=0)
    check_int("S", S, at_least=0)
    at = np.zeros(0) if like is None else like
    return np.arange(S, like=at) <= np.arange(T, like=at)[:, None] + S - T


def masked(scores: Array, keep_mask: Array | None, causal: bool) -> Array:
    """Scores (..., T, S), -inf where a mask does not let the query attend to the key.

    Examples
    --------
    >>> masked(np.zeros((2, 2)), None, causal=True)
    array([[  0., -inf],
           [  0.,   0.]])
    """
    if keep_mask is not None:
        scores = np.where(keep_mask, scores, -np.inf)
    if causal:
        scores = np.where(causal_mask(*scores.shape[-2:], like=scores), scores, -np.inf)
    return scores


@operation("ids: B S ids -> keep_mask: B 1 1 S mask")
def padding_mask(ids: Array, pad_id: int = 0) -> Array:
    """Which keys are words and not padding, shaped to broadcast over heads and queries.

    Parameters
    ----------
    ids : (B, S) int
    pad_id : int

    Returns
    -------
    (B, 1, 1, S) bool

    Examples
    --------
    >>> import numpy as np
    >>> padding_mask(np.array([[5, 3, 0]]))
    array([[[[ True,  True, False]]]])
    """
    return (ids != pad_id)[:, None, None, :]


@operation("keep_mask: ... mask -> mask: ...")
def to_additive(keep_mask: Array, dtype="float32") -> Array:
    """The papers' form of a mask, to be added to the scores: 0 where True, -inf where False.

    Examples
    --------
    >>> import numpy as np
    >>> to_additive(np.array([True, False]), "float64")
    array([  0., -inf])
    """
    if np.dtype(dtype).kind in "biuSU":
        raise ValueError(f"dtype={dtype!r}, expected a float dtype: integers have no -inf")
    return np.where(keep_mask, 0.0, -np.inf).astype(dtype)


@operation("mask: ... -> keep_mask: ... mask")
def from_additive(mask: Array) -> Array:
    """The boolean form of an additive mask; only 0 and -inf have one, -1e9 is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from_additive(np.array([0.0, -np.inf]))
    array([ True, False])
    """
    keep_mask = mask == 0
    other = mask[~keep_mask & (mask != -np.inf)]
    if other.size:
        raise ValueError(f"mask holds {other.ravel()[0]}, expected only 0 (may attend) and -inf (may not)")
    return keep_mask
