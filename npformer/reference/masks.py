"""Masks: boolean, True = may attend."""

import numpy as np

from npformer.reference.arrays import Array, library_of
from npformer.reference.checks import check_keep_mask


def causal_mask(T: int, S: int | None = None) -> Array:
    """Each query sees the keys up to its own position: keep[t, s] = (s <= t + S - T).

    With S > T the queries are the last T of S positions, as in decoding with earlier keys cached.

    Parameters
    ----------
    T : int
        Number of queries.
    S : int, optional
        Number of keys; T if not given.

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
    if T < 0 or S < 0:
        raise ValueError(f"T={T}, S={S}: expected lengths of 0 or more")
    return np.tri(T, S, k=S - T, dtype=bool)


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
    library_of(ids, "ids")
    if ids.dtype.kind not in "iu":
        raise TypeError(f"ids has dtype {ids.dtype}, expected integers")
    if ids.ndim != 2:
        raise ValueError(f"ids has shape {ids.shape}, expected (B, S)")
    return (ids != pad_id)[:, None, None, :]


def to_additive(keep_mask: Array, dtype="float32") -> Array:
    """The papers' form of a mask, to be added to the scores: 0 where True, -inf where False.

    Examples
    --------
    >>> import numpy as np
    >>> to_additive(np.array([True, False]), "float64")
    array([  0., -inf])
    """
    check_keep_mask(keep_mask)
    xp = library_of(keep_mask, "keep_mask")
    return xp.where(keep_mask, 0.0, -xp.inf).astype(dtype)


def from_additive(mask: Array) -> Array:
    """The boolean form of an additive mask; only 0 and -inf have one, -1e9 is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from_additive(np.array([0.0, -np.inf]))
    array([ True, False])
    """
    library_of(mask, "mask")
    if mask.dtype.kind != "f":
        raise TypeError(f"mask has dtype {mask.dtype}, expected floats that are 0 or -inf")
    keep_mask = mask == 0
    other = mask[~keep_mask & (mask != -np.inf)]
    if other.size:
        raise ValueError(f"mask holds {other.ravel()[0]}, expected only 0 (may attend) and -inf (may not)")
    return keep_mask
