"""What the kernels of recurrent cells share: which steps each row takes."""

import numpy as np

from npformer.cpu.jit import inlined
from npformer.cpu.rows import add_row


def steps_of(keep_mask, B, T, reverse):
    """(order, keeps): the steps of a sequence in the order of a pass, and which of them each row
    takes (B, T), all without a mask. In the others its state passes by.
    """
    order = np.arange(T - 1, -1, -1) if reverse else np.arange(T)
    return order, np.ones((B, T), np.bool_) if keep_mask is None else keep_mask


@inlined
def add_where(keeps, t, through, dh):
    """Add the gradients through the gates of step t to those of the rows that take it."""
    for b in range(len(dh)):
        if keeps[b, t]:
            add_row(through[b], dh[b])
