"""Dropout, with the mask recomputed instead of stored (Srivastava et al. 2014).

x may have any shape; the result has the same. What is drawn depends on the key and on the place of
an entry alone, so the backward pass draws it again.
"""

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation
from npformer.reference.math.random import bits_of


@operation("x: ... -> y: ...")
def dropout(x: Array, dropout_rate: float, dropout_key: int | None) -> Array:
    """Set each entry to zero with probability ``dropout_rate`` and divide the others by
    1 - dropout_rate.

    Which entries are kept is a pure function of (dropout_key, position in C order): two calls with
    the same key drop the same entries, on every backend. The key may be None only if the rate is 0;
    0 <= dropout_rate < 1.

    >>> dropout(np.ones(8), dropout_rate=0.5, dropout_key=1)
    array([0., 2., 2., 2., 0., 0., 2., 0.])
    """
    if dropout_rate == 0:
        return x
    index = np.arange(x.size, like=x).reshape(x.shape)
    keep = dropout_keep(index, dropout_rate, dropout_key)
    # Not a product with the mask: what is dropped may be NaN, and 0 · NaN is NaN.
    return np.where(keep, x * kept_scale(dropout_rate), 0)


@backward_of(dropout)
def dropout_backward(dy: Array, dropout_rate: float, dropout_key: int | None) -> Array:
    """The gradient of a dropped entry is 0, that of a kept one is dy / (1 - dropout_rate): dropout
    applied to dy.

    >>> dropout(np.ones(8), dropout_rate=0.5, dropout_key=1)
    array([0., 2., 2., 2., 0., 0., 2., 0.])
    >>> dropout_backward(np.arange(8.0), dropout_rate=0.5, dropout_key=1)  # drops the same ones
    array([ 0.,  2.,  4.,  6.,  0.,  0., 12.,  0.])
    """
    return dropout(dy, dropout_rate, dropout_key)


def dropout_keep(index, dropout_rate, dropout_key):
    """Boolean mask, True = kept, of the elements with these indices."""
    return bits_of(index, dropout_key) >= threshold(dropout_rate)


def threshold(dropout_rate):
    """The integer below which a fraction ``dropout_rate`` of all 32-bit integers lies."""
    # Not 2**32, to which a rate just below 1 would be rounded: 32 bits do not hold it.
    return round(dropout_rate * (2**32 - 1))


def kept_scale(dropout_rate):
    """1 / (1 - dropout_rate), the factor of the kept elements, which keeps the expected value
    unchanged.
    """
    return 1 / (1 - dropout_rate)
