"""The mean of each row, and its root mean square, also where the sum or the squares overflow."""

import numpy as np


def mean_of_rows(x):
    """mean(x) over the last axis.

    >>> mean_of_rows(np.array([[1.0, 3.0], [1e308, 1e308]]))
    array([[2.e+000],
           [1.e+308]])
    """
    with np.errstate(over="ignore"):
        mean = x.mean(axis=-1, keepdims=True)
    if not np.isfinite(mean).all():
        unit = _units(~np.isfinite(mean), x)
        mean = (x / unit).mean(axis=-1, keepdims=True) * unit
    return mean


def reciprocal_root_mean_square(x, eps):
    """1/√(mean(x²) + eps) over the last axis.

    >>> x = np.array([[1.0, 7.0], [1e200, 7e200]])  # mean(x²) is 25, and 25e400
    >>> reciprocal_root_mean_square(x, eps=1e-12).round(201)
    array([[2.e-001],
           [2.e-201]])
    """
    with np.errstate(over="ignore"):
        result = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    if not result.all():  # 1/√∞ is 0
        unit = _units(result == 0, x)
        x = x / unit
        result = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps / unit / unit) / unit
    return result


def _units(overflows, x):
    """What each row is divided by: 1, or where it overflows a number so large that neither sum nor
    squares do.

    It is a power of two, so that the division changes no digit.
    """
    dtype = x.real.dtype
    large = np.ldexp(dtype.type(1), 5 * np.finfo(dtype).maxexp // 8)
    return np.where(overflows, large, dtype.type(1))
