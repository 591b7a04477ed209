"""What the kernels of recurrent cells share: which arrays they take, and a step's launch."""

import cupy

from npformer.gpu.arrays import contiguous, size_of, suit
from npformer.gpu.launch import for_each_element


def fits(n_gates, weight, keep_mask, gates, first, along=()):
    """Whether a sequence can be done here: float32 or float64, shapes that fit, something to do.

    ``gates`` are (B, T, …), ``first`` states (B, D), and ``along`` arrays (B, T, D).
    """
    if not suit(weight, gates, *first, *along) or weight.dtype.itemsize < 4 or weight.ndim != 2 or gates.ndim != 3:
        return False
    shape, D = gates.shape[:2], len(weight)
    fit = weight.shape[1] == n_gates * D and all(x.shape == (shape[0], D) for x in first)
    return fit and all(x.shape == (*shape, D) for x in along) and _fits_mask(keep_mask, shape)


def launch_step(name, size, t, T, reverse, *arrays):
    """Run a kernel for step t; size is (B, D)."""
    before = t + 1 if reverse else t - 1
    before = before if before < T else -1
    B, D = size
    for_each_element("recurrence", name, arrays[0].dtype, B * D, *arrays, *size_of(B, T, D, t, before))


def mask_of(keep_mask):
    """The mask as the kernels take it."""
    return None if keep_mask is None else contiguous(keep_mask)


def states_before(states, first, reverse):
    """The state with which each step begins, as rows (B T, D)."""
    before = cupy.empty(states.shape, states.dtype)
    if reverse:
        before[:, :-1], before[:, -1] = states[:, 1:], first
    else:
        before[:, 1:], before[:, 0] = states[:, :-1], first
    return before.reshape(-1, states.shape[2])


def _fits_mask(keep_mask, shape):
    if keep_mask is None:
        return True
    return isinstance(keep_mask, cupy.ndarray) and keep_mask.dtype.kind == "b" and keep_mask.shape == shape
