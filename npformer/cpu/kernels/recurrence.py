"""Recurrent cells: one kernel for a whole sequence, with a matrix product and a fused cell for each step."""

import numpy as np

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.rows import add_row, copy_row
from npformer.cpu.scalar import like, sigmoid, tanh
from npformer.cpu.sums import add_rows
from npformer.runtime.memory import empty


@kernel_of(reference.gru)
def gru(x_gates, h0, weight, bias, keep_mask, reverse):
    (B, T, _), D = x_gates.shape, h0.shape[1]
    states, gates = empty((B, T, D), h0.dtype), empty((B, T, 4 * D), h0.dtype)
    inputs = x_gates, weight, bias, _kept_steps(keep_mask, B, T), reverse
    _gru_run(BLAS[h0.dtype], *inputs, states, gates, h0.copy(), np.empty((B, 3 * D), h0.dtype))
    return states, gates


@kernel_of(reference.gru_backward)
def gru_backward(dstates, h0, weight, states, gates, keep_mask, reverse):
    B, T, D = states.shape
    dx_gates, dh_gates, h_before = (empty((B, T, width), h0.dtype) for width in (3 * D, 3 * D, D))
    dh, dweight, dbias = np.zeros((B, D), h0.dtype), empty((D, 3 * D), h0.dtype), np.empty(D, h0.dtype)
    inputs = dstates, h0, weight, states, gates, _kept_steps(keep_mask, B, T), reverse
    work = dh_gates, h_before, np.empty((B, 3 * D), h0.dtype)
    _gru_run_back(BLAS[h0.dtype], *inputs, dx_gates, dh, dweight, dbias, *work)
    return dx_gates, dh, dweight, dbias


@kernel
def _gru_run(blas, x_gates, weight, bias, kept, reverse, states, gates, h, h_gates):
    B, T, _ = states.shape
    for i in range(T):
        t = T - 1 - i if reverse else i
        multiply(blas, h, weight, h_gates, False)
        for b in range(B):
            _gru_cell(x_gates[b, t], h_gates[b], bias, h[b], kept[b, t], states[b, t], gates[b, t])
            copy_row(states[b, t], h[b])


@inlined
def _gru_cell(x, from_h, bias, h, kept, new_h, gates):
    D = len(h)
    for j in range(D):
        gates[j] = sigmoid(x[j] + from_h[j])
        gates[D + j] = sigmoid(x[D + j] + from_h[D + j])
        gates[3 * D + j] = from_h[2 * D + j] + bias[j]
    for j in range(D):
        z = gates[D + j]
        n = tanh(x[2 * D + j] + gates[j] * gates[3 * D + j])
        gates[2 * D + j] = n
        new_h[j] = (like(z, 1) - z) * n + z * h[j] if kept else h[j]


@kernel
def _gru_run_back(
    blas, dstates, h0, weight, states, gates, kept, reverse, dx_gates, dh, dweight, dbias, dh_gates, h_before, step
):
    B, T, D = states.shape
    through = np.empty((B, D), dh.dtype)  # the gradient of the previous state through the gates of a step
    for i in range(T):
        t = i if reverse else T - 1 - i
        before = t + 1 if reverse else t - 1
        for b in range(B):
            copy_row(states[b, before] if 0 <= before < T else h0[b], h_before[b, t])
            _gru_cell_back(dstates[b, t], h_before[b, t], gates[b, t], kept[b, t], dh[b], dx_gates[b, t], step[b])
            copy_row(step[b], dh_gates[b, t])
        multiply(blas, step, weight.T, through, False)
        for b in range(B):
            if kept[b, t]:
                add_row(through[b], dh[b])
    rows = dh_gates.reshape(B * T, 3 * D)
    multiply(blas, h_before.reshape(B * T, D).T, rows, dweight, False)
    add_rows(rows[:, 2 * D :], dbias)


@inlined
def _gru_cell_back(dstate, h, gates, kept, dh, dx, dh_gates):
    D = len(h)
    zero, one = like(h[0], 0), like(h[0], 1)
    for j in range(D):
        r, z, n, h_n = gates[j], gates[D + j], gates[2 * D + j], gates[3 * D + j]
        dnew = dh[j] + dstate[j]
        da_n = dnew * (one - z) * (one - n * n) if kept else zero
        dx[j] = da_n * h_n * r * (one - r) if kept else zero
        dx[D + j] = dnew * (h[j] - n) * z * (one - z) if kept else zero
        dx[2 * D + j] = da_n
        dh_gates[2 * D + j] = da_n * r if kept else zero
        dh[j] = dnew * z if kept else dnew
    for j in range(D):
        dh_gates[j] = dx[j]
        dh_gates[D + j] = dx[D + j]


@kernel_of(reference.lstm)
def lstm(x_gates, h0, c0, weight, keep_mask, reverse):
    (B, T, _), D = x_gates.shape, h0.shape[1]
    states, cells, gates = (empty((B, T, width), h0.dtype) for width in (D, D, 4 * D))
    inputs = x_gates, weight, _kept_steps(keep_mask, B, T), reverse
    work = h0.copy(), c0.copy(), np.empty((B, 4 * D), h0.dtype)
    _lstm_run(BLAS[h0.dtype], *inputs, states, cells, gates, *work)
    return states, cells, gates


@kernel_of(reference.lstm_backward)
def lstm_backward(dstates, dcells, h0, c0, weight, states, cells, gates, keep_mask, reverse):
    B, T, D = states.shape
    dx_gates, h_before, dweight = (empty(shape, h0.dtype) for shape in (gates.shape, states.shape, (D, 4 * D)))
    dh, dc = np.zeros((B, D), h0.dtype), np.zeros((B, D), h0.dtype)
    dcells = np.zeros_like(states) if dcells is None else dcells
    inputs, kept = (dstates, dcells, h0, c0, weight, states, cells, gates), _kept_steps(keep_mask, B, T)
    work = h_before, np.empty((B, 4 * D), h0.dtype)
    _lstm_run_back(BLAS[h0.dtype], inputs, kept, reverse, dx_gates, dh, dc, dweight, *work)
    return dx_gates, dh, dc, dweight


@kernel
def _lstm_run(blas, x_gates, weight, kept, reverse, states, cells, gates, h, c, h_gates):
    B, T, _ = states.shape
    for i in range(T):
        t = T - 1 - i if reverse else i
        multiply(blas, h, weight, h_gates, False)
        for b in range(B):
            _lstm_cell(x_gates[b, t], h_gates[b], h[b], c[b], kept[b, t], states[b, t], cells[b, t], gates[b, t])
            copy_row(states[b, t], h[b])
            copy_row(cells[b, t], c[b])


@inlined
def _lstm_cell(x, from_h, h, c, kept, new_h, new_c, gates):
    D = len(h)
    for j in range(2 * D):
        gates[j] = sigmoid(x[j] + from_h[j])
    for j in range(2 * D, 3 * D):
        gates[j] = tanh(x[j] + from_h[j])
    for j in range(3 * D, 4 * D):
        gates[j] = sigmoid(x[j] + from_h[j])
    for j in range(D):
        moved = gates[D + j] * c[j] + gates[j] * gates[2 * D + j]
        new_h[j] = gates[3 * D + j] * tanh(moved) if kept else h[j]
        new_c[j] = moved if kept else c[j]


@kernel
def _lstm_run_back(blas, inputs, kept, reverse, dx_gates, dh, dc, dweight, h_before, step):
    dstates, dcells, h0, c0, weight, states, cells, gates = inputs
    B, T, D = states.shape
    through = np.empty((B, D), dh.dtype)  # the gradient of the previous state through the gates of a step
    for i in range(T):
        t = i if reverse else T - 1 - i
        before = t + 1 if reverse else t - 1
        for b in range(B):
            copy_row(states[b, before] if 0 <= before < T else h0[b], h_before[b, t])
            c = cells[b, before] if 0 <= before < T else c0[b]
            add_row(dstates[b, t], dh[b])
            add_row(dcells[b, t], dc[b])
            _lstm_cell_back(c, cells[b, t], gates[b, t], kept[b, t], dh[b], dc[b], dx_gates[b, t])
            copy_row(dx_gates[b, t], step[b])
        multiply(blas, step, weight.T, through, False)
        for b in range(B):
            if kept[b, t]:
                add_row(through[b], dh[b])
    multiply(blas, h_before.reshape(B * T, D).T, dx_gates.reshape(B * T, 4 * D), dweight, False)


@inlined
def _lstm_cell_back(c, new_c, gates, kept, dh, dc, dx):
    D = len(c)
    zero, one = like(c[0], 0), like(c[0], 1)
    for j in range(D):
        i, f, g, o = gates[j], gates[D + j], gates[2 * D + j], gates[3 * D + j]
        tanh_c = tanh(new_c[j])
        moved = dc[j] + dh[j] * o * (one - tanh_c * tanh_c)
        dx[j] = moved * g * i * (one - i) if kept else zero
        dx[D + j] = moved * c[j] * f * (one - f) if kept else zero
        dx[2 * D + j] = moved * i * (one - g * g) if kept else zero
        dx[3 * D + j] = dh[j] * tanh_c * o * (one - o) if kept else zero
        dc[j] = moved * f if kept else dc[j]
        dh[j] = zero if kept else dh[j]


def _kept_steps(keep_mask, B, T):
    """The mask, or a mask that keeps all steps if it is None."""
    return np.ones((B, T), np.bool_) if keep_mask is None else keep_mask
