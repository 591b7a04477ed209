"""The gated recurrent unit: a matrix product and a kernel for each step."""

import cupy

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.columns import sum_columns
from npformer.gpu.recurrence import launch_step, states_before
from npformer.reference.math.recurrence import state_before, steps


@kernel_of(reference.gru, as_it_lies="weight", dtypes="float32 float64")
def gru(x_gates, h0, weight, bias, keep_mask, reverse):
    (B, T, _), D = x_gates.shape, h0.shape[1]
    states, gates = (cupy.empty((B, T, width), h0.dtype) for width in (D, 4 * D))
    for t in steps(T, reverse):
        h_gates = multiply(state_before(t, states, h0, reverse), weight)
        launch_step("gru_step", h0.shape, t, T, reverse, x_gates, h_gates, bias, h0, keep_mask, states, gates)
    return states, gates


@kernel_of(reference.gru_backward, as_it_lies="weight", dtypes="float32 float64")
def gru_backward(dstates, h0, weight, states, gates, keep_mask, reverse):
    B, T, D = states.shape
    dx_gates, dh_gates = (cupy.empty((B, T, 3 * D), h0.dtype) for _ in range(2))
    dh, saved = cupy.zeros((B, D), h0.dtype), (h0, keep_mask, states, gates)
    for t in reversed(steps(T, reverse)):
        launch_step("gru_step_backward", h0.shape, t, T, reverse, dstates, *saved, dh, dx_gates, dh_gates)
        multiply(dh_gates[:, t], weight.T, out=dh, beta=1.0)
    rows = dh_gates.reshape(B * T, 3 * D)
    dweight = multiply(states_before(states, h0, reverse).T, rows)
    return dx_gates, dh, dweight, sum_columns(rows)[2 * D :]
