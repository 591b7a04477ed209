"""The gated recurrent unit (GRU) along a sequence (Cho et al. 2014)."""

import numpy as np

from npformer.arrays import Array, transpose
from npformer.operations.formula import backward_of, operation
from npformer.reference.math.activations import sigmoid, tanh
from npformer.reference.math.linear import sum_over_rows
from npformer.reference.math.recurrence import state_before, steps


@operation(
    "x_gates: B T 3*D, h0: B D, weight: D 3*D, bias: D, keep_mask: B T mask -> states: B T D, gates: B T 4*D",
    flops="6*B*T*D*D",
)
def gru(
    x_gates: Array, h0: Array, weight: Array, bias: Array, keep_mask: Array | None = None, *, reverse: bool = False
) -> tuple[Array, Array]:
    """The states of a gated recurrent unit: h_t = (1 - z) n + z h_{t-1}.

    At step t, with h = h_{t-1}, the reset gate is r = σ(x_r + h U_r), the update gate z = σ(x_z + h U_z), and the
    candidate state n = tanh(x_n + r (h U_n + b)) (equations 5 to 8 of Cho et al. 2014, in the form that cuDNN and
    PyTorch compute).

    Parameters
    ----------
    x_gates
        The input's terms x_r, x_z, x_n side by side: one linear map of the input, with its own bias.
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

    >>> x_gates = np.array([[[0.0, -99.0, 9.0], [0.0, 99.0, -9.0]]])  # z = 0: take the new state; z = 1: keep the old
    >>> states, gates = gru(x_gates, np.zeros((1, 1)), np.zeros((1, 3)), np.zeros(1))
    >>> states.round(3)
    array([[[1.],
            [1.]]])
    """
    B, T, D = *x_gates.shape[:2], h0.shape[1]
    dtype = np.result_type(x_gates, h0, weight, bias)
    states, gates = (np.empty_like(x_gates, shape=(B, T, width), dtype=dtype) for width in (D, 4 * D))
    h = h0
    for t in steps(T, reverse):
        new, gates[:, t] = _gru_cell(x_gates[:, t], h, weight, bias)
        h = new if keep_mask is None else np.where(keep_mask[:, t, None], new, h)
        states[:, t] = h
    return states, gates


def _gru_cell(x_gates, h, weight, bias):
    """One step: (B, 3D), (B, D) -> the new state (B, D) and the ``gates`` (B, 4D) that the backward pass needs."""
    x_r, x_z, x_n = np.split(x_gates, 3, axis=1)
    h_r, h_z, h_n = np.split(h @ weight, 3, axis=1)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    h_n = h_n + bias
    n = tanh(x_n + r * h_n)
    return (1 - z) * n + z * h, np.concatenate([r, z, n, h_n], axis=1)


def _gru_cell_backward(dnew, h, weight, gates):
    """dnew (B, D) -> dx_gates (B, 3D), dh (B, D), and the gradient of h U + b (B, 3D)."""
    r, z, n, h_n = np.split(gates, 4, axis=1)
    da_n = dnew * (1 - z) * (1 - n * n)  # of what is inside n's tanh
    da_r = da_n * h_n * r * (1 - r)
    da_z = dnew * (h - n) * z * (1 - z)
    dh_gates = np.concatenate([da_r, da_z, da_n * r], axis=1)
    dh = dnew * z + dh_gates @ transpose(weight)
    return np.concatenate([da_r, da_z, da_n], axis=1), dh, dh_gates


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
    """The gradients (dx_gates, dh0, dweight, dbias): backpropagation through time, in the reverse order of the steps.

    The gradient dh of a state is the sum of its dstates and of the gradient from the next step. The gradients of the
    sums inside the gates are da_n = dh (1 - z) (1 - n²), da_r = da_n (h U_n + b) r (1 - r) and
    da_z = dh (h - n) z (1 - z); see docs/gradients/recurrence.md.

    >>> h0, weight, bias = np.array([[8.0]]), np.zeros((1, 3)), np.zeros(1)
    >>> states, gates = gru(np.zeros((1, 2, 3)), h0, weight, bias)  # r = z = 1/2 and n = 0: the states are 4 and 2
    >>> dx_gates, dh0, dweight, dbias = gru_backward(np.ones((1, 2, 1)), h0, weight, states, gates)
    >>> dh0  # z (1 + z · 1)
    array([[0.75]])
    >>> dx_gates  # dh = 1 + z · 1 = 1.5 in the first step: da_z = 1.5 · 8 · 1/4, da_n = 1.5 · 1/2
    array([[[0.  , 3.  , 0.75],
            [0.  , 1.  , 0.5 ]]])
    """
    B, T, D = states.shape
    dtype = np.result_type(dstates, weight, gates)
    dx_gates, dh_gates = (np.empty_like(states, shape=(B, T, 3 * D), dtype=dtype) for _ in range(2))
    dh, dweight = np.zeros_like(h0), np.zeros_like(weight)
    for t in reversed(steps(T, reverse)):
        h = state_before(t, states, h0, reverse)
        dh = dh + dstates[:, t]
        dx, dh_through, da_h = _gru_cell_backward(dh, h, weight, gates[:, t])
        if keep_mask is not None:  # a masked step passes dh on unchanged, and its other gradients are 0
            kept = keep_mask[:, t, None]
            dx, da_h = np.where(kept, dx, 0), np.where(kept, da_h, 0)
            dh_through = np.where(kept, dh_through, dh)
        dx_gates[:, t], dh_gates[:, t], dh = dx, da_h, dh_through
        dweight = dweight + transpose(h) @ da_h
    return dx_gates, dh, dweight, sum_over_rows(dh_gates[..., 2 * D :])
