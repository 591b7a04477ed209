"""What the kernels of recurrent cells share: which arrays they take."""

import numpy as np

from npformer.cpu.arrays import suit
from npformer.cpu.blas import can_multiply


def fits(n_gates, x_gates, keep_mask, weight, *first):
    """Whether a sequence can be done here: one dtype, shapes that fit, something to do."""
    return (
        suit(x_gates, weight, *first)
        and can_multiply(weight)
        and x_gates.size > 0
        and x_gates.ndim == 3
        and weight.ndim == 2
        and weight.shape[1] == x_gates.shape[2] == n_gates * weight.shape[0]
        and all(x.shape == (len(x_gates), len(weight)) for x in first)
        and fits_mask(keep_mask, x_gates.shape[:2])
    )


def fits_backward(n_gates, weight, gates, keep_mask, first, along):
    """The same for the way back; ``along`` are arrays (B, T, D)."""
    return (
        suit(weight, gates, *first, *along)
        and can_multiply(weight)
        and gates.size > 0
        and gates.ndim == 3
        and weight.ndim == 2
        and weight.shape[1] == n_gates * len(weight)
        and gates.shape[2] == 4 * len(weight)
        and all(x.shape == (len(gates), len(weight)) for x in first)
        and all(x.shape == (*gates.shape[:2], len(weight)) for x in along)
        and fits_mask(keep_mask, gates.shape[:2])
    )


def fits_mask(keep_mask, shape):
    """Whether there is no mask, or one that is boolean and of this shape."""
    return keep_mask is None or (
        type(keep_mask) is np.ndarray and keep_mask.dtype == np.bool_ and keep_mask.shape == shape
    )


def kept_steps(keep_mask, B, T):
    """The mask, or one that keeps all."""
    return np.ones((B, T), np.bool_) if keep_mask is None else np.ascontiguousarray(keep_mask)
