"""The gated recurrent unit: a product and a kernel for each step."""

import cupy

from npformer import reference
from npformer.gpu.arrays import contiguous, suit
from npformer.gpu.blas import multiply
from npformer.gpu.columns import sum_columns
from npformer.gpu.recurrence import fits, launch_step, mask_of, states_before
from npformer.reference.recurrence import state_before, steps


def gru(x_gates, h0, weight, bias, keep_mask=None, *, reverse=False):
    """As ``reference.gru``."""
    shapes_fit = fits(3, weight, keep_mask, x_gates, [h0]) and x_gates.shape[2] == weight.shape[1]
    if not (shapes_fit and suit(h0, bias) and bias.shape == h0.shape[1:]):
        return reference.gru(x_gates, h0, weight, bias, keep_mask, reverse=reverse)
    (B, T, _), D = x_gates.shape, h0.shape[1]
    states, gates = (cupy.empty((B, T, width), h0.dtype) for width in (D, 4 * D))
    x_gates, h0, bias, mask = contiguous(x_gates), contiguous(h0), contiguous(bias), mask_of(keep_mask)
    for t in steps(T, reverse):
        h_gates = multiply(state_before(t, states, h0, reverse), weight)
        launch_step("gru_step", h0.shape, t, T, reverse, x_gates, h_gates, bias, h0, mask, states, gates)
    return states, gates


def gru_backward(dstates, h0, weight, states, gates, keep_mask=None, *, reverse=False):
    """As ``reference.gru_backward``."""
    if not fits(3, weight, keep_mask, gates, [h0], [dstates, states]) or gates.shape[2] != 4 * len(weight):
        return reference.gru_backward(dstates, h0, weight, states, gates, keep_mask, reverse=reverse)
    B, T, D = states.shape
    dx_gates, dh_gates = (cupy.empty((B, T, 3 * D), h0.dtype) for _ in range(2))
    dh = cupy.zeros((B, D), h0.dtype)
    dstates, h0, states, gates = map(contiguous, (dstates, h0, states, gates))
    saved = h0, mask_of(keep_mask), states, gates
    for t in reversed(steps(T, reverse)):
        launch_step("gru_step_backward", h0.shape, t, T, reverse, dstates, *saved, dh, dx_gates, dh_gates)
        multiply(dh_gates[:, t], weight.T, out=dh, beta=1.0)
    rows = dh_gates.reshape(B * T, 3 * D)
    dweight = multiply(states_before(states, h0, reverse).T, rows)
    return dx_gates, dh, dweight, sum_columns(rows)[2 * D :]
