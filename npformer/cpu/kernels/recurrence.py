"""Recurrent cells: one kernel for a whole sequence, with a matrix product and a fused cell for each
step.
"""

from typing import NamedTuple

import numpy as np

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu.backend import kernel_of
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.kernels.linear import NOTHING, multiply_and_sum
from npformer.cpu.rows import add_row, copy_row
from npformer.cpu.scalar import like, sigmoid, tanh
from npformer.runtime.memory import empty


class Steps(NamedTuple):
    """The steps of a sequence in the order of a pass, and which of them each row takes (B, T). In
    the others its state passes by.
    """

    order: np.ndarray
    keeps: np.ndarray


class Saved(NamedTuple):
    """What the backward pass of the LSTM reads: the cells before and after each step, and the
    gates.
    """

    before: np.ndarray
    cells: np.ndarray
    gates: np.ndarray


@kernel_of(reference.gru)
def gru(x_gates, h0, weight, bias, keep_mask, reverse):
    B, T, _ = x_gates.shape
    _, D = h0.shape
    states = empty((B, T, D), h0.dtype)
    gates = empty((B, T, 4 * D), h0.dtype)
    steps = _steps(keep_mask, B, T, reverse)
    _gru_run(BLAS[h0.dtype], steps, x_gates, weight, bias, h0.copy(), states, gates)
    return states, gates


@kernel_of(reference.gru_backward)
def gru_backward(dstates, h0, weight, states, gates, keep_mask, reverse):
    B, T, D = states.shape
    dx_gates = empty((B, T, 3 * D), h0.dtype)
    dh_gates = empty((B, T, 3 * D), h0.dtype)
    dh = np.zeros_like(h0)
    blas = BLAS[h0.dtype]
    before = _before(states, h0, reverse)
    steps = _steps(keep_mask, B, T, not reverse)
    _gru_run_back(blas, steps, dstates, before, weight, gates, dx_gates, dh_gates, dh)

    dweight = empty(weight.shape, h0.dtype)
    dbias = np.empty(3 * D, h0.dtype)
    multiply_and_sum(blas, as_rows(before), as_rows(dh_gates), dweight, dbias)
    return dx_gates, dh, dweight, dbias[2 * D :]


@kernel
def _gru_run(blas, steps, x_gates, weight, bias, h, states, gates):
    order, keeps = steps
    h_gates = np.empty((len(h), 3 * h.shape[1]), h.dtype)
    for t in order:
        multiply(blas, h, weight, h_gates, False)
        for b in range(len(h)):
            _gru_cell(x_gates[b, t], h_gates[b], bias, h[b], keeps[b, t], states[b, t], gates[b, t])
            copy_row(states[b, t], h[b])


@inlined
def _gru_cell(x, from_h, bias, h, keeps, new_h, gates):
    D = len(h)
    for j in range(D):
        gates[j] = sigmoid(x[j] + from_h[j])
        gates[D + j] = sigmoid(x[D + j] + from_h[D + j])
        gates[3 * D + j] = from_h[2 * D + j] + bias[j]
    for j in range(D):
        z = gates[D + j]
        n = tanh(x[2 * D + j] + gates[j] * gates[3 * D + j])
        gates[2 * D + j] = n
        new_h[j] = (like(z, 1) - z) * n + z * h[j] if keeps else h[j]


@kernel
def _gru_run_back(blas, steps, dstates, before, weight, gates, dx_gates, dh_gates, dh):
    order, keeps = steps
    through = np.empty_like(dh)  # the gradient of the state before, through the gates of a step
    for t in order:
        for b in range(len(dh)):
            dx, dh_gate = dx_gates[b, t], dh_gates[b, t]
            _gru_cell_back(
                dstates[b, t], before[b, t], gates[b, t], keeps[b, t], dh[b], dx, dh_gate
            )
        multiply(blas, dh_gates[:, t], weight.T, through, False)
        _add_where(keeps, t, through, dh)


@inlined
def _gru_cell_back(dstate, h, gates, keeps, dh, dx, dh_gates):
    D = len(h)
    zero, one = like(h[0], 0), like(h[0], 1)
    for j in range(D):
        r, z, n, h_n = gates[j], gates[D + j], gates[2 * D + j], gates[3 * D + j]
        dnew = dh[j] + dstate[j]
        da_n = dnew * (one - z) * (one - n * n) if keeps else zero
        dx[j] = da_n * h_n * r * (one - r) if keeps else zero
        dx[D + j] = dnew * (h[j] - n) * z * (one - z) if keeps else zero
        dx[2 * D + j] = da_n
        dh_gates[2 * D + j] = da_n * r if keeps else zero
        dh[j] = dnew * z if keeps else dnew
    copy_row(dx[: 2 * D], dh_gates[: 2 * D])


@kernel_of(reference.lstm)
def lstm(x_gates, h0, c0, weight, keep_mask, reverse):
    B, T, _ = x_gates.shape
    _, D = h0.shape
    states = empty((B, T, D), h0.dtype)
    cells = empty((B, T, D), h0.dtype)
    gates = empty((B, T, 4 * D), h0.dtype)
    steps = _steps(keep_mask, B, T, reverse)
    h, c = h0.copy(), c0.copy()
    _lstm_run(BLAS[h0.dtype], steps, x_gates, weight, h, c, states, cells, gates)
    return states, cells, gates


@kernel_of(reference.lstm_backward)
def lstm_backward(dstates, dcells, h0, c0, weight, states, cells, gates, keep_mask, reverse):
    B, T, _ = states.shape
    dx_gates = empty(gates.shape, h0.dtype)
    dh, dc = np.zeros_like(h0), np.zeros_like(c0)
    if dcells is None:
        dcells = np.zeros_like(states)
    blas = BLAS[h0.dtype]
    saved = Saved(_before(cells, c0, reverse), cells, gates)
    steps = _steps(keep_mask, B, T, not reverse)
    _lstm_run_back(blas, steps, dstates, dcells, weight, saved, dx_gates, dh, dc)

    dweight = empty(weight.shape, h0.dtype)
    h_before = as_rows(_before(states, h0, reverse))
    multiply_and_sum(blas, h_before, as_rows(dx_gates), dweight, NOTHING[h0.dtype])
    return dx_gates, dh, dc, dweight


@kernel
def _lstm_run(blas, steps, x_gates, weight, h, c, states, cells, gates):
    order, keeps = steps
    h_gates = np.empty((len(h), 4 * h.shape[1]), h.dtype)
    for t in order:
        multiply(blas, h, weight, h_gates, False)
        for b in range(len(h)):
            x, new_h, new_c = x_gates[b, t], states[b, t], cells[b, t]
            _lstm_cell(x, h_gates[b], h[b], c[b], keeps[b, t], new_h, new_c, gates[b, t])
            copy_row(new_h, h[b])
            copy_row(new_c, c[b])


@inlined
def _lstm_cell(x, from_h, h, c, keeps, new_h, new_c, gates):
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
def _lstm_run_back(blas, steps, dstates, dcells, weight, saved, dx_gates, dh, dc):
    order, keeps = steps
    before, cells, gates = saved
    through = np.empty_like(dh)  # as of the GRU
    for t in order:
        for b in range(len(dh)):
            add_row(dstates[b, t], dh[b])
            add_row(dcells[b, t], dc[b])
            c, new_c, dx = before[b, t], cells[b, t], dx_gates[b, t]
            _lstm_cell_back(c, new_c, gates[b, t], keeps[b, t], dh[b], dc[b], dx)
        multiply(blas, dx_gates[:, t], weight.T, through, False)
        _add_where(keeps, t, through, dh)


@inlined
def _lstm_cell_back(c, new_c, gates, keeps, dh, dc, dx):
    D = len(c)
    zero, one = like(c[0], 0), like(c[0], 1)
    for j in range(D):
        i, f, g, o = gates[j], gates[D + j], gates[2 * D + j], gates[3 * D + j]
        tanh_c = tanh(new_c[j])
        moved = dc[j] + dh[j] * o * (one - tanh_c * tanh_c)
        dx[j] = moved * g * i * (one - i) if keeps else zero
        dx[D + j] = moved * c[j] * f * (one - f) if keeps else zero
        dx[2 * D + j] = moved * i * (one - g * g) if keeps else zero
        dx[3 * D + j] = dh[j] * tanh_c * o * (one - o) if keeps else zero
        dc[j] = moved * f if keeps else dc[j]
        dh[j] = zero if keeps else dh[j]


@inlined
def _add_where(keeps, t, through, dh):
    """Add the gradients through the gates of step t to those of the rows that take it."""
    for b in range(len(dh)):
        if keeps[b, t]:
            add_row(through[b], dh[b])


def _steps(keep_mask, B, T, reverse):
    """The steps in their order, of which each row takes all if there is no mask."""
    order = np.arange(T - 1, -1, -1) if reverse else np.arange(T)
    return Steps(order, np.ones((B, T), np.bool_) if keep_mask is None else keep_mask)


def _before(states, first, reverse):
    """The state before each step, (B, T, D); ``first`` is that before the first step."""
    first = first[:, None]
    return np.concatenate([states[:, 1:], first] if reverse else [first, states[:, :-1]], axis=1)
