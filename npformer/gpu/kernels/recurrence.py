"""Recurrent cells: ``reference.gru``, ``reference.lstm`` and their backward passes.

Each step is a matrix product of cuBLAS and one kernel for the gates and the new state.
"""

from typing import NamedTuple

import cupy

from npformer import reference
from npformer.arrays import as_rows
from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.columns import sum_columns
from npformer.gpu.launch import element_kernel
from npformer.reference.math.recurrence import state_before, states_before, steps


@kernel_of(reference.gru, as_it_lies="weight", dtypes="float32 float64")
def gru(x_gates, h0, weight, bias, keep_mask, reverse):
    B, T, _ = x_gates.shape
    D = h0.shape[1]
    states = cupy.empty((B, T, D), h0.dtype)
    gates = cupy.empty((B, T, 4 * D), h0.dtype)
    kernel = element_kernel("recurrence", "gru_step", h0.dtype, h0.size)
    for step in _steps(B, T, D, reverse):
        h_gates = multiply(state_before(step.t, states, h0, reverse), weight)
        # gru_step(x_gates, h_gates, bias, h0, keep_mask, states, gates, B, T, D, t, before)
        kernel(x_gates, h_gates, bias, h0, keep_mask, states, gates, *step)
    return states, gates


@kernel_of(reference.gru_backward, as_it_lies="weight", dtypes="float32 float64")
def gru_backward(dstates, h0, weight, states, gates, keep_mask, reverse):
    B, T, D = states.shape
    dx_gates = cupy.empty((B, T, 3 * D), h0.dtype)
    dh_gates = cupy.empty((B, T, 3 * D), h0.dtype)
    dh = cupy.zeros((B, D), h0.dtype)
    kernel = element_kernel("recurrence", "gru_step_backward", h0.dtype, h0.size)
    for step in reversed(_steps(B, T, D, reverse)):
        # gru_step_backward(dstates, h0, keep_mask, states, gates, dh, dx_gates, dh_gates, B, T, D,
        # t, before)
        kernel(dstates, h0, keep_mask, states, gates, dh, dx_gates, dh_gates, *step)
        multiply(dh_gates[:, step.t], weight.T, out=dh, add=True)
    rows = as_rows(dh_gates)
    dweight = multiply(as_rows(states_before(states, h0, reverse)).T, rows)
    return dx_gates, dh, dweight, sum_columns(rows)[2 * D :]


@kernel_of(reference.lstm, as_it_lies="weight", dtypes="float32 float64")
def lstm(x_gates, h0, c0, weight, keep_mask, reverse):
    B, T, _ = x_gates.shape
    D = h0.shape[1]
    states = cupy.empty((B, T, D), h0.dtype)
    cells = cupy.empty((B, T, D), h0.dtype)
    gates = cupy.empty((B, T, 4 * D), h0.dtype)
    kernel = element_kernel("recurrence", "lstm_step", h0.dtype, h0.size)
    for step in _steps(B, T, D, reverse):
        h_gates = multiply(state_before(step.t, states, h0, reverse), weight)
        # lstm_step(x_gates, h_gates, h0, c0, keep_mask, states, cells, gates, B, T, D, t, before)
        kernel(x_gates, h_gates, h0, c0, keep_mask, states, cells, gates, *step)
    return states, cells, gates


@kernel_of(reference.lstm_backward, as_it_lies="weight", dtypes="float32 float64")
def lstm_backward(dstates, dcells, h0, c0, weight, states, cells, gates, keep_mask, reverse):
    B, T, D = states.shape
    dx_gates = cupy.empty((B, T, 4 * D), h0.dtype)
    dh = cupy.zeros((B, D), h0.dtype)
    dc = cupy.zeros((B, D), h0.dtype)
    kernel = element_kernel("recurrence", "lstm_step_backward", h0.dtype, h0.size)
    for step in reversed(_steps(B, T, D, reverse)):
        # lstm_step_backward(dstates, dcells, c0, keep_mask, cells, gates, dh, dc, dx_gates, B, T,
        # D, t, before)
        kernel(dstates, dcells, c0, keep_mask, cells, gates, dh, dc, dx_gates, *step)
        multiply(dx_gates[:, step.t], weight.T, out=dh, add=True)
    dweight = multiply(as_rows(states_before(states, h0, reverse)).T, as_rows(dx_gates))
    return dx_gates, dh, dc, dweight


class Step(NamedTuple):
    """The last arguments of each kernel."""

    B: int
    T: int
    D: int
    t: int
    before: int  # the step whose state this one starts from, -1 if it is the first


def _steps(B, T, D, reverse):
    """The steps in the order of the forward pass."""
    order = steps(T, reverse)
    return [Step(B, T, D, t, before) for t, before in zip(order, [-1, *order], strict=False)]
