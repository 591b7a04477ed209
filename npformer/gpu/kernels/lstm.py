"""The long short-term memory: a matrix product and a kernel for each step."""

import cupy

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.recurrence import launch_step, states_before
from npformer.reference.math.recurrence import state_before, steps


@kernel_of(reference.lstm, as_it_lies="weight", dtypes="float32 float64")
def lstm(x_gates, h0, c0, weight, keep_mask, reverse):
    (B, T, _), D = x_gates.shape, h0.shape[1]
    states, cells, gates = (cupy.empty((B, T, width), h0.dtype) for width in (D, D, 4 * D))
    for t in steps(T, reverse):
        h_gates = multiply(state_before(t, states, h0, reverse), weight)
        arrays = x_gates, h_gates, h0, c0, keep_mask, states, cells, gates
        launch_step("lstm_step", h0.shape, t, T, reverse, *arrays)
    return states, cells, gates


@kernel_of(reference.lstm_backward, as_it_lies="weight", dtypes="float32 float64")
def lstm_backward(dstates, dcells, h0, c0, weight, states, cells, gates, keep_mask, reverse):
    B, T, D = states.shape
    dx_gates = cupy.empty((B, T, 4 * D), h0.dtype)
    dh, dc = cupy.zeros((B, D), h0.dtype), cupy.zeros((B, D), h0.dtype)
    arrays = dstates, dcells, c0, keep_mask, cells, gates
    for t in reversed(steps(T, reverse)):
        launch_step("lstm_step_backward", h0.shape, t, T, reverse, *arrays, dh, dc, dx_gates)
        multiply(dx_gates[:, t], weight.T, out=dh, beta=1.0)
    dweight = multiply(states_before(states, h0, reverse).T, dx_gates.reshape(B * T, 4 * D))
    return dx_gates, dh, dc, dweight
