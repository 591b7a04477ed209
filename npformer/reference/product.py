"""The matrix product of masked arrays, where a zero weight hides whatever it meets."""

from npformer.reference.arrays import Array, namespace, quiet


@quiet
def product(a: Array, b: Array) -> Array:
    """Matrix product in which an exact 0 annihilates NaN and inf: 0 * NaN = 0.

    A masked key has attention weight 0, yet ``0 * NaN`` is NaN: one NaN in a padded value row would
    reach every output. Here it reaches only those outputs that give it a weight.

    Parameters
    ----------
    a : (..., n, m)
    b : (..., m, p)

    Returns
    -------
    (..., n, p)
        ``a @ b``; NaN where a NaN or inf meets a factor that is not 0.

    Examples
    --------
    >>> import numpy as np
    >>> product(np.array([[0.0, 2.0]]), np.array([[np.nan], [3.0]]))
    array([[6.]])
    """
    xp = namespace(a=a, b=b)
    if min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"a {a.shape}, b {b.shape}: expected a (..., n, m), b (..., m, p)")
    out = a @ b
    if edges_are_finite(out):
        return out
    bad_a, bad_b = ~xp.isfinite(a), ~xp.isfinite(b)
    tainted = (bad_a @ (b != 0)) | ((a != 0) @ bad_b)
    return xp.where(tainted, xp.nan, xp.where(bad_a, 0, a) @ xp.where(bad_b, 0, b))


def edges_are_finite(out: Array) -> bool:
    """Whether no factor of this product holds NaN or inf.

    In the left one it spoils a whole row of the product, in the right one a whole column: the first ones tell.
    """
    xp = namespace(out=out)
    return bool(xp.isfinite(out[..., :1]).all() and xp.isfinite(out[..., :1, :]).all())
