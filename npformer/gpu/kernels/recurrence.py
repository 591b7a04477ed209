"""Recurrent cells: a matrix product and a kernel for each step."""

import cupy

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.columns import sum_columns
from npformer.gpu.launch import for_each_element
from npformer.reference.math.recurrence import state_before, steps


@kernel_of(reference.gru, as_it_lies="weight", dtypes="float32 float64")
def gru(x_gates, h0, weight, bias, keep_mask, reverse):
    (B, T, _), D = x_gates.shape, h0.shape[1]
    states, gates = (cupy.empty((B, T, width), h0.dtype) for width in (D, 4 * D))
    for t in steps(T, reverse):
        h_gates = multiply(state_before(t, states, h0, reverse), weight)
        arrays = x_gates, h_gates, bias, h0, keep_mask, states, gates
        _launch_step("gru_step", h0.shape, t, T, reverse, *arrays)
    return states, gates


@kernel_of(reference.gru_backward, as_it_lies="weight", dtypes="float32 float64")
def gru_backward(dstates, h0, weight, states, gates, keep_mask, reverse):
    B, T, D = states.shape
    dx_gates, dh_gates = (cupy.empty((B, T, 3 * D), h0.dtype) for _ in range(2))
    dh, saved = cupy.zeros((B, D), h0.dtype), (h0, keep_mask, states, gates)
    for t in reversed(steps(T, reverse)):
        _launch_step(
            "gru_step_backward", h0.shape, t, T, reverse, dstates, *saved, dh, dx_gates, dh_gates
        )
        multiply(dh_gates[:, t], weight.T, out=dh, add=True)
    rows = dh_gates.reshape(B * T, 3 * D)
    dweight = multiply(_states_before(states, h0, reverse).T, rows)
    return dx_gates, dh, dweight, sum_columns(rows)[2 * D :]


@kernel_of(reference.lstm, as_it_lies="weight", dtypes="float32 float64")
def lstm(x_gates, h0, c0, weight, keep_mask, reverse):
    (B, T, _), D = x_gates.shape, h0.shape[1]
    states, cells, gates = (cupy.empty((B, T, width), h0.dtype) for width in (D, D, 4 * D))
    for t in steps(T, reverse):
        h_gates = multiply(state_before(t, states, h0, reverse), weight)
        arrays = x_gates, h_gates, h0, c0, keep_mask, states, cells, gates
        _launch_step("lstm_step", h0.shape, t, T, reverse, *arrays)
    return states, cells, gates


@kernel_of(reference.lstm_backward, as_it_lies="weight", dtypes="float32 float64")
def lstm_backward(dstates, dcells, h0, c0, weight, states, cells, gates, keep_mask, reverse):
    B, T, D = states.shape
    dx_gates = cupy.empty((B, T, 4 * D), h0.dtype)
    dh, dc = cupy.zeros((B, D), h0.dtype), cupy.zeros((B, D), h0.dtype)
    arrays = dstates, dcells, c0, keep_mask, cells, gates
    for t in reversed(steps(T, reverse)):
        _launch_step("lstm_step_backward", h0.shape, t, T, reverse, *arrays, dh, dc, dx_gates)
        multiply(dx_gates[:, t], weight.T, out=dh, add=True)
    dweight = multiply(_states_before(states, h0, reverse).T, dx_gates.reshape(B * T, 4 * D))
    return dx_gates, dh, dc, dweight


def _launch_step(name, size, t, T, reverse, *arrays):
    """Run a kernel for step t; size is (B, D)."""
    before = t + 1 if reverse else t - 1
    before = before if before < T else -1
    B, D = size
    for_each_element("recurrence", name, arrays[0].dtype, B * D, *arrays, B, T, D, t, before)


def _states_before(states, first, reverse):
    """The state before each step, as rows (B T, D)."""
    before = cupy.empty(states.shape, states.dtype)
    if reverse:
        before[:, :-1], before[:, -1] = states[:, 1:], first
    else:
        before[:, 1:], before[:, 0] = states[:, :-1], first
    return before.reshape(-1, states.shape[2])
