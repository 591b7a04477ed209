"""What the kernels of recurrent cells share."""

import numpy as np


def kept_steps(keep_mask, B, T):
    """The mask, or one that keeps all."""
    return np.ones((B, T), np.bool_) if keep_mask is None else keep_mask
