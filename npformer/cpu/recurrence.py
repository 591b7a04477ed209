"""A function that the kernels of recurrent cells share."""

import numpy as np


def kept_steps(keep_mask, B, T):
    """The mask, or a mask that keeps all steps if it is None."""
    return np.ones((B, T), np.bool_) if keep_mask is None else keep_mask
