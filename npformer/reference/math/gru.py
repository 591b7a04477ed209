"""The gated recurrent unit (GRU) along a sequence (Cho et al. 2014).

There are B sequences of T steps, and a state of width D for each. The input comes as three terms
for each step, 3·D numbers; what the backward pass needs of a step are four, 4·D.
"""

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation
from npformer.reference.math.activations import sigmoid, tanh
from npformer.reference.math.linear import sum_over_rows
from npformer.reference.math.recurrence import state_before, steps


@operation(
    "x_gates: B T 3*D, h0: B D, weight: D 3*D, bias: D, keep_mask: B T mask "
    "-> states: B T D, gates: B T 4*D",
    flops="6*B*T*D*D",
)
def gru(
    x_gates: Array,
    h0: Array,
    weight: Array,
    bias: Array,
    keep_mask: Array | None = None,
    *,
    reverse: bool = False,
) -> tuple[Array, Array]:
    """The states of a gated recurrent unit: h_t = (1 - z) n + z h_{t-1}.

    At step t, with h = h_{t-1}, the reset gate, the update gate and the candidate state are

        r = σ(x_r + h U_r)
        z = σ(x_z + h U_z)
        n = tanh(x_n + r (h U_n + b))

    These are equations 5 to 8 of Cho et al. 2014, in the form that cuDNN and PyTorch compute.

    Parameters
    ----------
    x_gates
        The input's terms x_r, x_z, x_n side by side: one linear map of the input, with its own
        bias.
    h0
        The state before the first step.
    weight
        U_r, U_z, U_n side by side.
    bias
        b. It is multiplied by r, so it cannot be merged with the bias of the input.
    keep_mask
        False = padding: the state does not change at this step.
    reverse
        Process the steps from the last to the first.

    Returns
    -------
    states
        h_t at each step.
    gates
        r, z, n and h U_n + b, for the backward pass.

    >>> new, old = [0.0, -99.0, 9.0], [0.0, 99.0, -9.0]  # z = 0: take n; z = 1: keep h
    >>> x_gates = np.array([[new, old]])
    >>> states, gates = gru(x_gates, np.zeros((1, 1)), np.zeros((1, 3)), np.zeros(1))
    >>> states.round(3)
    array([[[1.],
            [1.]]])
    """
    B, T, _ = x_gates.shape
    D = h0.shape[1]
    dtype = np.result_type(x_gates, h0, weight, bias)
    states = np.empty_like(x_gates, shape=(B, T, D), dtype=dtype)
    gates = np.empty_like(x_gates, shape=(B, T, 4 * D), dtype=dtype)
    h = h0
    for t in steps(T, reverse):
        new_h, gates[:, t] = _gru_cell(x_gates[:, t], h, weight, bias)
        if keep_mask is not None:  # at padding, the state does not change
            new_h = np.where(keep_mask[:, t, None], new_h, h)
        h = new_h
        states[:, t] = h
    return states, gates


def _gru_cell(x_gates, h, weight, bias):
    """One step: (B, 3D), (B, D) -> the new state (B, D), and the ``gates`` (B, 4D) for the backward
    pass.
    """
    x_r, x_z, x_n = np.split(x_gates, 3, axis=1)
    h_r, h_z, h_n = np.split(h @ weight, 3, axis=1)
    r = sigmoid(x_r + h_r)
    z = sigmoid(x_z + h_z)
    h_n = h_n + bias
    n = tanh(x_n + r * h_n)
    new_h = (1 - z) * n + z * h
    return new_h, np.concatenate([r, z, n, h_n], axis=1)


def _gru_cell_backward(dnew_h, h, weight, gates):
    """dnew_h (B, D) -> dx_gates (B, 3D), dh (B, D), and the gradient of h U + b (B, 3D)."""
    r, z, n, h_n = np.split(gates, 4, axis=1)

    # new_h = (1 - z) n + z h; da is the gradient of what is inside the tanh or the sigmoid
    da_n = dnew_h * (1 - z) * (1 - n * n)
    da_r = da_n * h_n * r * (1 - r)
    da_z = dnew_h * (h - n) * z * (1 - z)
    dx_gates = np.concatenate([da_r, da_z, da_n], axis=1)

    # h enters through z h, and through h U + b, of which r multiplies the part of n
    dh_gates = np.concatenate([da_r, da_z, da_n * r], axis=1)
    dh = dnew_h * z + dh_gates @ weight.T
    return dx_gates, dh, dh_gates


@backward_of(gru, flops="12*B*T*D*D")
def gru_backward(
    dstates: Array,
    h0: Array,
    weight: Array,
    states: Array,
    gates: Array,
    keep_mask: Array | None = None,
    *,
    reverse: bool = False,
) -> tuple[Array, Array, Array, Array]:
    """The gradients (dx_gates, dh0, dweight, dbias): backpropagation through time, in the reverse
    order of the steps.

    The gradient dh of a state is the sum of its dstates and of the gradient from the next step. The
    gradients of the sums inside the gates are da_n = dh (1 - z) (1 - n²), da_r = da_n (h U_n + b) r
    (1 - r) and da_z = dh (h - n) z (1 - z); see docs/gradients/recurrence.md.

    >>> h0, weight, bias = np.array([[8.0]]), np.zeros((1, 3)), np.zeros(1)
    >>> states, gates = gru(np.zeros((1, 2, 3)), h0, weight, bias)  # r = z = 1/2, n = 0: 4 and 2
    >>> dx_gates, dh0, dweight, dbias = gru_backward(np.ones((1, 2, 1)), h0, weight, states, gates)
    >>> dh0  # z (1 + z · 1)
    array([[0.75]])
    >>> dx_gates  # dh = 1 + z · 1 = 1.5 in the first step: da_z = 1.5 · 8 · 1/4, da_n = 1.5 · 1/2
    array([[[0.  , 3.  , 0.75],
            [0.  , 1.  , 0.5 ]]])
    """
    B, T, D = states.shape
    dtype = np.result_type(dstates, weight, gates)
    dx_gates = np.empty_like(states, shape=(B, T, 3 * D), dtype=dtype)
    dh_gates = np.empty_like(dx_gates)
    dweight = np.zeros_like(weight)
    dh = np.zeros_like(h0)
    for t in reversed(steps(T, reverse)):
        h = state_before(t, states, h0, reverse)
        dnew_h = dh + dstates[:, t]
        dx, dh, da_h = _gru_cell_backward(dnew_h, h, weight, gates[:, t])
        if keep_mask is not None:  # padding passes dh on unchanged, and its other gradients are 0
            keep = keep_mask[:, t, None]
            dx = np.where(keep, dx, 0)
            dh = np.where(keep, dh, dnew_h)
            da_h = np.where(keep, da_h, 0)
        dx_gates[:, t] = dx
        dh_gates[:, t] = da_h
        dweight = dweight + h.T @ da_h
    dbias = sum_over_rows(dh_gates[..., 2 * D :])
    return dx_gates, dh, dweight, dbias
