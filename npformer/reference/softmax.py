"""Softmax: from scores to weights that are positive and sum to one."""

from npformer.reference.arrays import Array, namespace, narrow, quiet, widen
from npformer.reference.checks import check_shape


@quiet
def softmax(x: Array, axis: int = -1) -> Array:
    """Exponentiate and normalise: y_i = exp(x_i) / sum_j exp(x_j).

    The largest entry is subtracted first, which changes nothing in the quotient and keeps exp from
    overflowing. Entries of -inf get weight 0; a row of nothing else gives exact zeros, not NaN.

    Parameters
    ----------
    x : (..., n)
    axis : int
        The axis that sums to one.

    Returns
    -------
    (..., n)

    Examples
    --------
    >>> import numpy as np
    >>> softmax(np.array([0.0, np.log(3.0), -np.inf]))
    array([0.25, 0.75, 0.  ])
    """
    xp = namespace(x=x)
    if x.size == 0:
        return x.copy()
    wide = widen(x)
    peak = wide.real.max(axis=axis, keepdims=True)
    e = xp.exp(wide - xp.where(xp.isneginf(peak), 0, peak))
    total = e.sum(axis=axis, keepdims=True)
    return narrow(e / xp.where(total == 0, 1, total), x)


def softmax_backward(dy: Array, y: Array, axis: int = -1) -> Array:
    """dx_i = y_i (dy_i - sum_j dy_j y_j).

    ``y`` is all that has to be kept: the exponential is its own derivative.
    """
    namespace(dy=dy, y=y)
    check_shape(dy=(dy, y.shape))
    wide_dy = widen(dy)
    dx = y * (wide_dy - (wide_dy * y).sum(axis=axis, keepdims=True))
    return narrow(dx, dy)


@quiet
def log_softmax(x: Array, axis: int = -1) -> Array:
    """The logarithm of softmax without taking the logarithm of a tiny number: x_i - log sum_j exp(x_j).

    A row of -inf stays -inf.

    Parameters
    ----------
    x : (..., n)
    axis : int

    Returns
    -------
    (..., n)

    Examples
    --------
    >>> import numpy as np
    >>> log_softmax(np.array([0.0, 1000.0]))
    array([-1000.,     0.])
    """
    xp = namespace(x=x)
    if x.size == 0:
        return x.copy()
    wide = widen(x)
    peak = wide.real.max(axis=axis, keepdims=True)
    shifted = wide - xp.where(xp.isneginf(peak), 0, peak)
    total = xp.exp(shifted).sum(axis=axis, keepdims=True)
    return narrow(shifted - xp.log(xp.where(total == 0, 1, total)), x)


def log_softmax_backward(dy: Array, y: Array, axis: int = -1) -> Array:
    """dx_i = dy_i - softmax(x)_i sum_j dy_j, with softmax(x) = exp(y)."""
    xp = namespace(dy=dy, y=y)
    check_shape(dy=(dy, y.shape))
    wide_dy = widen(dy)
    dx = wide_dy - xp.exp(y) * wide_dy.sum(axis=axis, keepdims=True)
    return narrow(dx, dy)
