"""The gated recurrent unit: one kernel for a whole sequence, with a matrix product and a fused cell for each step."""

import numpy as np

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.memory import empty
from npformer.cpu.recurrence import kept_steps
from npformer.cpu.scalar import like, sigmoid, tanh
from npformer.cpu.sums import add_rows


@kernel_of(reference.gru)
def gru(x_gates, h0, weight, bias, keep_mask, reverse):
    (B, T, _), D = x_gates.shape, h0.shape[1]
    states, gates = empty((B, T, D), h0.dtype), empty((B, T, 4 * D), h0.dtype)
    inputs = x_gates, weight, bias, kept_steps(keep_mask, B, T), reverse
    _run(BLAS[h0.dtype], *inputs, states, gates, h0.copy(), np.empty((B, 3 * D), h0.dtype))
    return states, gates


@kernel_of(reference.gru_backward)
def gru_backward(dstates, h0, weight, states, gates, keep_mask, reverse):
    B, T, D = states.shape
    dx_gates, dh_gates, h_before = (empty((B, T, width), h0.dtype) for width in (3 * D, 3 * D, D))
    dh, dweight, dbias = np.zeros((B, D), h0.dtype), empty((D, 3 * D), h0.dtype), np.empty(D, h0.dtype)
    inputs = dstates, h0, weight, states, gates, kept_steps(keep_mask, B, T), reverse
    work = dh_gates, h_before, np.empty((B, 3 * D), h0.dtype)
    _run_back(BLAS[h0.dtype], *inputs, dx_gates, dh, dweight, dbias, *work)
    return dx_gates, dh, dweight, dbias


@kernel
def _run(blas, x_gates, weight, bias, kept, reverse, states, gates, h, h_gates):
    B, T, _ = states.shape
    for i in range(T):
        t = T - 1 - i if reverse else i
        multiply(blas, h, weight, h_gates, False)
        for b in range(B):
            _cell(x_gates[b, t], h_gates[b], bias, h[b], kept[b, t], states[b, t], gates[b, t])
            h[b] = states[b, t]


@inlined
def _cell(x, from_h, bias, h, kept, new_h, gates):
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
def _run_back(
    blas, dstates, h0, weight, states, gates, kept, reverse, dx_gates, dh, dweight, dbias, dh_gates, h_before, step
):
    B, T, D = states.shape
    through = np.empty((B, D), dh.dtype)  # the gradient of the previous state through the gates of a step
    for i in range(T):
        t = i if reverse else T - 1 - i
        before = t + 1 if reverse else t - 1
        for b in range(B):
            h_before[b, t] = states[b, before] if 0 <= before < T else h0[b]
            _cell_back(dstates[b, t], h_before[b, t], gates[b, t], kept[b, t], dh[b], dx_gates[b, t], step[b])
            dh_gates[b, t] = step[b]
        multiply(blas, step, weight.T, through, False)
        for b in range(B):
            if kept[b, t]:
                dh[b] += through[b]
    rows = dh_gates.reshape(B * T, 3 * D)
    multiply(blas, h_before.reshape(B * T, D).T, rows, dweight, False)
    add_rows(rows[:, 2 * D :], dbias)


@inlined
def _cell_back(dstate, h, gates, kept, dh, dx, dh_gates):
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
