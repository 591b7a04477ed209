"""Softmax: from scores to weights that are positive and sum to one.

x may have any shape; the result has the same, and sums to one along the axis that is named.
"""

import numpy as np

from npformer.arrays import Array
from npformer.errors import UserError
from npformer.operations.formula import backward_of, operation


def _check_axis(*, axis, y=None, x=None, **_):
    # It gets all arguments by name: x of the forward pass, dy and y of the backward pass.
    array = y if x is None else x
    ndim = max(array.ndim, 1)
    if not -ndim <= axis < ndim:
        expected = f"-{ndim} <= axis < {ndim}, as there are {ndim} axes"
        raise UserError(f"axis={axis}, expected {expected}")


@operation("x: ... -> y: ...", check=_check_axis)
def softmax(x: Array, axis: int = -1) -> Array:
    """Exponentiate and normalise: y_i = exp(x_i) / sum_j exp(x_j).

    The largest entry is subtracted first, which does not change the quotient and prevents exp from
    overflowing. Entries of -inf become 0; a row that consists only of -inf gives exact zeros, not
    NaN.

    Parameters
    ----------
    axis
        The axis along which the result sums to 1.

    >>> softmax(np.array([0.0, np.log(3.0), -np.inf]))
    array([0.25, 0.75, 0.  ])
    """
    if x.size == 0:  # there is no largest of no entries
        return x
    # .real: gradient checks pass complex numbers, which have no largest; otherwise it is x itself.
    peak = x.real.max(axis=axis, keepdims=True)
    shift = np.where(np.isneginf(peak), 0, peak)  # -inf - -inf would be NaN
    e = np.exp(x - shift)
    total = e.sum(axis=axis, keepdims=True)
    return e / np.where(total == 0, 1, total)


@backward_of(softmax, check=_check_axis)
def softmax_backward(dy: Array, y: Array, axis: int = -1) -> Array:
    """dx_i = y_i (dy_i - sum_j dy_j y_j).

    The backward pass needs only the output ``y``, since the exponential is its own derivative.

    >>> y = softmax(np.log([1.0, 3.0]))  # 1/4 and 3/4
    >>> softmax_backward(np.array([16.0, 0.0]), y).round(6)  # 1/4 (16 - 4) and 3/4 (0 - 4)
    array([ 3., -3.])
    """
    total = (dy * y).sum(axis=axis, keepdims=True)
    return y * (dy - total)


@operation("x: ... -> y: ...", check=_check_axis)
def log_softmax(x: Array, axis: int = -1) -> Array:
    """The logarithm of softmax, computed without the logarithm of a tiny number.

    y_i = x_i - log Σ_j exp(x_j).

    A row that consists only of -inf is returned unchanged.

    >>> log_softmax(np.array([0.0, 1000.0]))
    array([-1000.,     0.])
    """
    if x.size == 0:  # there is no largest of no entries
        return x
    peak = x.real.max(axis=axis, keepdims=True)
    shift = np.where(np.isneginf(peak), 0, peak)
    shifted = x - shift
    total = np.exp(shifted).sum(axis=axis, keepdims=True)
    return shifted - np.log(np.where(total == 0, 1, total))


@backward_of(log_softmax, check=_check_axis)
def log_softmax_backward(dy: Array, y: Array, axis: int = -1) -> Array:
    """dx_i = dy_i - softmax(x)_i sum_j dy_j, with softmax(x) = exp(y).

    >>> y = log_softmax(np.log([1.0, 3.0]))  # log 1/4 and log 3/4
    >>> log_softmax_backward(np.array([4.0, 0.0]), y).round(6)  # 4 - 1/4 · 4, 0 - 3/4 · 4
    array([ 3., -3.])
    """
    return dy - np.exp(y) * dy.sum(axis=axis, keepdims=True)
