"""The matrix product of masked arrays, where a zero weight hides whatever it meets."""

import numpy as np

from npformer.arrays import Array
from npformer.operation import operation


@operation("a: ... n m, b: ... m p -> out: ... n p", flops="2*N*n*m*p")
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
    out = a @ b
    if np.isfinite(out).all():
        return out
    finite_a, finite_b = np.isfinite(a), np.isfinite(b)
    tainted = (~finite_a @ (b != 0)) | ((a != 0) @ ~finite_b)
    return np.where(tainted, np.nan, np.where(finite_a, a, 0) @ np.where(finite_b, b, 0))
