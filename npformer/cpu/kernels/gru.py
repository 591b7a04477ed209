"""The GRU: ``reference.gru`` and its backward pass, one kernel for a whole sequence.

Each step is a matrix product and two loops over a row, for the gates and the new state: no Python
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
from npformer.cpu.rows import copy_row
from npformer.cpu.scalar import like, sigmoid, tanh
from npformer.reference.math.recurrence import states_before
from npformer.runtime.memory import empty


@kernel_of(reference.gru)
def gru(x_gates, h0, weight, bias, keep_mask, reverse):
    B, T, _ = x_gates.shape
    _, D = h0.shape
    states = empty((B, T, D), h0.dtype)
    gates = empty((B, T, 4 * D), h0.dtype)
    steps = steps_of(keep_mask, B, T, reverse)
    _run(BLAS[h0.dtype], steps, x_gates, weight, bias, h0.copy(), (states, gates))
    return states, gates


@kernel_of(reference.gru_backward)
def gru_backward(dstates, h0, weight, states, gates, keep_mask, reverse):
    B, T, D = states.shape
    before = states_before(states, h0, reverse)
    steps = steps_of(keep_mask, B, T, not reverse)
    dx_gates = empty((B, T, 3 * D), h0.dtype)
    dh_gates = empty(dx_gates.shape, h0.dtype)
    dh = np.zeros_like(h0)
    blas = BLAS[h0.dtype]
    _run_backward(blas, steps, dstates, weight, (before, gates), (dx_gates, dh_gates), dh)

    dweight = empty(weight.shape, h0.dtype)
    dbias = np.empty(3 * D, h0.dtype)
    multiply_and_sum(blas, as_rows(before), as_rows(dh_gates), dweight, dbias)
    return dx_gates, dh, dweight, dbias[2 * D :]


@kernel
def _run(blas, steps, x_gates, weight, bias, h, saved):
    order, keeps = steps
    states, gates = saved
    h_gates = np.empty((len(h), 3 * h.shape[1]), h.dtype)
    for t in order:
        multiply(blas, h, weight, h_gates, False)
        for b in range(len(h)):
            _cell(x_gates[b, t], h_gates[b], bias, keeps[b, t], h[b], gates[b, t])
            copy_row(h[b], states[b, t])


@inlined
def _cell(x, from_h, bias, keeps, h, gates):
    """Turn the state h into the next one, and write the gates r, z and n, and what r multiplies."""
    D = len(h)
    for j in range(D):
        gates[j] = sigmoid(x[j] + from_h[j])
        gates[D + j] = sigmoid(x[D + j] + from_h[D + j])
        gates[3 * D + j] = from_h[2 * D + j] + bias[j]
    for j in range(D):
        z = gates[D + j]
        n = tanh(x[2 * D + j] + gates[j] * gates[3 * D + j])
        gates[2 * D + j] = n
        h[j] = (like(z, 1) - z) * n + z * h[j] if keeps else h[j]


@kernel
def _run_backward(blas, steps, dstates, weight, saved, dgates, dh):
    order, keeps = steps
    before, gates = saved
    dx_gates, dh_gates = dgates
    through = np.empty_like(dh)  # the gradient of the state before, through the gates of a step
    for t in order:
        for b in range(len(dh)):
            _cell_backward(
                dstates[b, t],
                before[b, t],
                gates[b, t],
                keeps[b, t],
                dh[b],
                dx_gates[b, t],
                dh_gates[b, t],
            )
        multiply(blas, dh_gates[:, t], weight.T, through, False)
        add_where(keeps, t, through, dh)


@inlined
def _cell_backward(dstate, h, gates, keeps, dh, dx, dh_gates):
    """Add dstate to dh, and turn it into the gradient of the state before, without that through the
    gates.
    """
    D = len(h)
    zero = like(h[0], 0)
    one = like(h[0], 1)
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
