"""The long short-term memory: a product and a kernel for each step."""

import cupy

from npformer import reference
from npformer.gpu.arrays import contiguous
from npformer.gpu.blas import multiply
from npformer.gpu.recurrence import fits, launch_step, mask_of, states_before
from npformer.reference.recurrence import state_before, steps


def lstm(x_gates, h0, c0, weight, keep_mask=None, *, reverse=False):
    """As ``reference.lstm``."""
    if not fits(4, weight, keep_mask, x_gates, [h0, c0]) or x_gates.shape[2] != weight.shape[1]:
        return reference.lstm(x_gates, h0, c0, weight, keep_mask, reverse=reverse)
    (B, T, _), D = x_gates.shape, h0.shape[1]
    states, cells, gates = (cupy.empty((B, T, width), h0.dtype) for width in (D, D, 4 * D))
    x_gates, h0, c0, mask = contiguous(x_gates), contiguous(h0), contiguous(c0), mask_of(keep_mask)
    for t in steps(T, reverse):
        h_gates = multiply(state_before(t, states, h0, reverse), weight)
        arrays = x_gates, h_gates, h0, c0, mask, states, cells, gates
        launch_step("lstm_step", h0.shape, t, T, reverse, *arrays)
    return states, cells, gates


def lstm_backward(dstates, dcells, h0, c0, weight, states, cells, gates, keep_mask=None, *, reverse=False):
    """As ``reference.lstm_backward``."""
    along = [x for x in (dstates, dcells, states, cells) if x is not None]
    if not fits(4, weight, keep_mask, gates, [h0, c0], along) or gates.shape[2] != weight.shape[1]:
        saved = states, cells, gates, keep_mask
        return reference.lstm_backward(dstates, dcells, h0, c0, weight, *saved, reverse=reverse)
    B, T, D = states.shape
    dx_gates = cupy.empty((B, T, 4 * D), h0.dtype)
    dh, dc = cupy.zeros((B, D), h0.dtype), cupy.zeros((B, D), h0.dtype)
    dstates, h0, c0, states, cells, gates = map(contiguous, (dstates, h0, c0, states, cells, gates))
    arrays = dstates, None if dcells is None else contiguous(dcells), c0, mask_of(keep_mask), cells, gates
    for t in reversed(steps(T, reverse)):
        launch_step("lstm_step_backward", h0.shape, t, T, reverse, *arrays, dh, dc, dx_gates)
        multiply(dx_gates[:, t], weight.T, out=dh, beta=1.0)
    dweight = multiply(states_before(states, h0, reverse).T, dx_gates.reshape(B * T, 4 * D))
    return dx_gates, dh, dc, dweight
