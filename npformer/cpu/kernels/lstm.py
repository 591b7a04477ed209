"""The LSTM: ``reference.lstm`` and its backward pass, one kernel for a whole sequence.

Each step is a matrix product and a few loops over a row, for the gates and the new state: no Python
code runs, and no array is made, between two steps.
"""

import numpy as np

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu.backend import kernel_of
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.kernels.linear import multiply_and_sum
from npformer.cpu.kernels.recurrence import add_where, steps_of
from npformer.cpu.linear_maps import NOTHING
from npformer.cpu.rows import add_row, copy_row
from npformer.cpu.scalar import like, sigmoid, tanh
from npformer.reference.math.recurrence import states_before
from npformer.runtime.memory import empty


@kernel_of(reference.lstm)
def lstm(x_gates, h0, c0, weight, keep_mask, reverse):
    B, T, _ = x_gates.shape
    states = empty((B, T, h0.shape[1]), h0.dtype)
    cells = empty(states.shape, h0.dtype)
    gates = empty(x_gates.shape, h0.dtype)
    steps = steps_of(keep_mask, B, T, reverse)
    _run(BLAS[h0.dtype], steps, x_gates, weight, (h0.copy(), c0.copy()), (states, cells, gates))
    return states, cells, gates


@kernel_of(reference.lstm_backward)
def lstm_backward(dstates, dcells, h0, c0, weight, states, cells, gates, keep_mask, reverse):
    B, T, _ = states.shape
    if dcells is None:
        dcells = np.zeros_like(states)
    saved = states_before(cells, c0, reverse), cells, gates
    steps = steps_of(keep_mask, B, T, not reverse)
    dx_gates = empty(gates.shape, h0.dtype)
    dh = np.zeros_like(h0)
    dc = np.zeros_like(c0)
    blas = BLAS[h0.dtype]
    _run_backward(blas, steps, (dstates, dcells), weight, saved, dx_gates, (dh, dc))

    dweight = empty(weight.shape, h0.dtype)
    h_before = as_rows(states_before(states, h0, reverse))
    multiply_and_sum(blas, h_before, as_rows(dx_gates), dweight, NOTHING[h0.dtype])
    return dx_gates, dh, dc, dweight


@kernel
def _run(blas, steps, x_gates, weight, state, saved):
    order, keeps = steps
    h, c = state
    states, cells, gates = saved
    h_gates = np.empty((len(h), 4 * h.shape[1]), h.dtype)
    for t in order:
        multiply(blas, h, weight, h_gates, False)
        for b in range(len(h)):
            new_h = states[b, t]
            new_c = cells[b, t]
            x = x_gates[b, t]
            _cell(x, h_gates[b], h[b], c[b], keeps[b, t], new_h, new_c, gates[b, t])
            copy_row(new_h, h[b])
            copy_row(new_c, c[b])


@inlined
def _cell(x, from_h, h, c, keeps, new_h, new_c, gates):
    """Write the next state and cell, and the gates i, f, g and o."""
    D = len(h)
    for j in range(2 * D):
        gates[j] = sigmoid(x[j] + from_h[j])
    for j in range(2 * D, 3 * D):
        gates[j] = tanh(x[j] + from_h[j])
    for j in range(3 * D, 4 * D):
        gates[j] = sigmoid(x[j] + from_h[j])
    for j in range(D):
        moved = gates[D + j] * c[j] + gates[j] * gates[2 * D + j]
        new_h[j] = gates[3 * D + j] * tanh(moved) if keeps else h[j]
        new_c[j] = moved if keeps else c[j]


@kernel
def _run_backward(blas, steps, dsaved, weight, saved, dx_gates, dstate):
    order, keeps = steps
    dstates, dcells = dsaved
    before, cells, gates = saved
    dh, dc = dstate
    through = np.empty_like(dh)  # the gradient of the state before, through the gates of a step
    for t in order:
        for b in range(len(dh)):
            add_row(dstates[b, t], dh[b])
            add_row(dcells[b, t], dc[b])
            _cell_backward(
                before[b, t], cells[b, t], gates[b, t], keeps[b, t], dh[b], dc[b], dx_gates[b, t]
            )
        multiply(blas, dx_gates[:, t], weight.T, through, False)
        add_where(keeps, t, through, dh)


@inlined
def _cell_backward(c, new_c, gates, keeps, dh, dc, dx):
    """Turn dh and dc into the gradients of the state and cell before, without those through the
    gates.
    """
    D = len(c)
    zero = like(c[0], 0)
    one = like(c[0], 1)
    for j in range(D):
        i, f, g, o = gates[j], gates[D + j], gates[2 * D + j], gates[3 * D + j]
        tanh_c = tanh(new_c[j])
        dnew_c = dc[j] + dh[j] * o * (one - tanh_c * tanh_c)
        dx[j] = dnew_c * g * i * (one - i) if keeps else zero
        dx[D + j] = dnew_c * c[j] * f * (one - f) if keeps else zero
        dx[2 * D + j] = dnew_c * i * (one - g * g) if keeps else zero
        dx[3 * D + j] = dh[j] * tanh_c * o * (one - o) if keeps else zero
        dc[j] = dnew_c * f if keeps else dc[j]
        dh[j] = zero if keeps else dh[j]
