"""Functions that the kernels of recurrent cells share."""

import cupy

from npformer.gpu.launch import for_each_element


def launch_step(name, size, t, T, reverse, *arrays):
    """Run a kernel for step t; size is (B, D)."""
    before = t + 1 if reverse else t - 1
    before = before if before < T else -1
    B, D = size
    for_each_element("recurrence", name, arrays[0].dtype, B * D, *arrays, B, T, D, t, before)


def states_before(states, first, reverse):
    """The state before each step, as rows (B T, D)."""
    before = cupy.empty(states.shape, states.dtype)
    if reverse:
        before[:, :-1], before[:, -1] = states[:, 1:], first
    else:
        before[:, 1:], before[:, 0] = states[:, :-1], first
    return before.reshape(-1, states.shape[2])
