"""Many heads from one width, and back (Vaswani et al. 2017, section 3.2.2)."""

from npformer.reference.arrays import Array, namespace


def split_heads(x: Array, n_heads: int) -> Array:
    """Cut the width D into H heads of K = D/H and bring the heads forward: (B, T, D) -> (B, H, T, K).

    Head h is the columns h K ... (h + 1) K of ``x``, as a view. ``merge_heads`` undoes it, and is its backward.

    Parameters
    ----------
    x : (..., T, D)
    n_heads : int

    Returns
    -------
    (..., H, T, K)

    Raises
    ------
    ValueError
        If D is not divisible by ``n_heads``.

    Examples
    --------
    >>> import numpy as np
    >>> split_heads(np.zeros((1, 10, 512)), n_heads=8).shape
    (1, 8, 10, 64)
    """
    namespace(x=x)
    if x.ndim < 2:
        raise ValueError(f"x has shape {x.shape}, expected (..., T, D)")
    *batch, T, D = x.shape
    if n_heads < 1 or D % n_heads:
        raise ValueError(f"d_model={D} is not divisible by n_heads={n_heads}")
    return x.reshape(*batch, T, n_heads, D // n_heads).swapaxes(-2, -3)


def merge_heads(x: Array) -> Array:
    """Lay the heads side by side again: (B, H, T, K) -> (B, T, D). ``split_heads`` is its backward.

    Parameters
    ----------
    x : (..., H, T, K)

    Returns
    -------
    (..., T, D)

    Examples
    --------
    >>> import numpy as np
    >>> merge_heads(np.zeros((1, 8, 10, 64))).shape
    (1, 10, 512)
    """
    namespace(x=x)
    if x.ndim < 3:
        raise ValueError(f"x has shape {x.shape}, expected (..., H, T, K)")
    *batch, H, T, K = x.shape
    return x.swapaxes(-2, -3).reshape(*batch, T, H * K)
