"""The long short-term memory (LSTM) along a sequence (Hochreiter and Schmidhuber 1997).

There are B sequences of T steps, and a state and a cell of width D for each. The input comes as
four terms for each step, 4·D numbers, as many as the gates that the backward pass needs.
"""

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation
from npformer.reference.math.activations import sigmoid, tanh
from npformer.reference.math.recurrence import state_before, steps


@operation(
    "x_gates: B T 4*D, h0: B D, c0: B D, weight: D 4*D, keep_mask: B T mask"
    " -> states: B T D, cells: B T D, gates: B T 4*D",
    flops="8*B*T*D*D",
)
def lstm(
    x_gates: Array,
    h0: Array,
    c0: Array,
    weight: Array,
    keep_mask: Array | None = None,
    *,
    reverse: bool = False,
) -> tuple[Array, Array, Array]:
    """The states of a long short-term memory: c_t = f c_{t-1} + i g, h_t = o tanh(c_t).

    At step t, with h = h_{t-1}, the input gate, the forget gate (added by Gers et al. 2000), the
    output gate and the candidate are

        i = σ(x_i + h U_i)
        f = σ(x_f + h U_f)
        o = σ(x_o + h U_o)
        g = tanh(x_g + h U_g)

    From c_t to c_{t-1} a gradient is only multiplied by f.

    Parameters
    ----------
    x_gates
        The input's terms x_i, x_f, x_g, x_o side by side: one linear map of the input, with its
        bias.
    h0, c0
        The state and the cell before the first step.
    weight
        U_i, U_f, U_g, U_o side by side.
    keep_mask
        False = padding: the state and the cell do not change at this step.
    reverse
        Process the steps from the last to the first.

    Returns
    -------
    states, cells
        h_t and c_t at each step.
    gates
        i, f, g, o, for the backward pass.

    >>> write, keep = [99.0, 0, 99, 99], [-99, 99, 0, -99]  # c = 1, h = tanh(1); then keep c, h = 0
    >>> x_gates, zero = np.array([[write, keep]]), np.zeros((1, 1))
    >>> states, cells, gates = lstm(x_gates, zero, zero, np.zeros((1, 4)))
    >>> states.round(3).ravel(), cells.round(3).ravel()
    (array([0.762, 0.   ]), array([1., 1.]))
    """
    B, T, _ = x_gates.shape
    D = h0.shape[1]
    dtype = np.result_type(x_gates, h0, c0, weight)
    gates = np.empty_like(x_gates, dtype=dtype)
    states = np.empty_like(x_gates, shape=(B, T, D), dtype=dtype)
    cells = np.empty_like(states)
    h = h0
    c = c0
    for t in steps(T, reverse):
        new_h, new_c, gates[:, t] = _lstm_cell(x_gates[:, t], h, c, weight)
        if keep_mask is not None:  # at padding, nothing changes
            keep = keep_mask[:, t, None]
            new_h = np.where(keep, new_h, h)
            new_c = np.where(keep, new_c, c)
        h = new_h
        c = new_c
        states[:, t] = h
        cells[:, t] = c
    return states, cells, gates


def _lstm_cell(x_gates, h, c, weight):
    """One step: (B, 4D), (B, D), (B, D) -> the new state and cell (B, D), and the gates (B, 4D)."""
    a_i, a_f, a_g, a_o = np.split(x_gates + h @ weight, 4, axis=1)
    i = sigmoid(a_i)
    f = sigmoid(a_f)
    g = tanh(a_g)
    o = sigmoid(a_o)
    new_c = f * c + i * g
    new_h = o * tanh(new_c)
    return new_h, new_c, np.concatenate([i, f, g, o], axis=1)


def _lstm_cell_backward(dnew_h, dnew_c, c, new_c, weight, gates):
    """dnew_h, dnew_c (B, D) -> the gradient of the sums inside the gates (B, 4D), dh, dc (B, D)."""
    i, f, g, o = np.split(gates, 4, axis=1)

    # new_h = o tanh(new_c)
    tanh_c = tanh(new_c)
    dnew_c = dnew_c + dnew_h * o * (1 - tanh_c * tanh_c)
    da_o = dnew_h * tanh_c * o * (1 - o)

    # new_c = f c + i g
    da_i = dnew_c * g * i * (1 - i)
    da_f = dnew_c * c * f * (1 - f)
    da_g = dnew_c * i * (1 - g * g)
    dc = dnew_c * f

    # a = x + h U
    da = np.concatenate([da_i, da_f, da_g, da_o], axis=1)
    dh = da @ weight.T
    return da, dh, dc


@backward_of(lstm, flops="16*B*T*D*D")
def lstm_backward(
    dstates: Array,
    dcells: Array | None,
    h0: Array,
    c0: Array,
    weight: Array,
    states: Array,
    cells: Array,
    gates: Array,
    keep_mask: Array | None = None,
    *,
    reverse: bool = False,
) -> tuple[Array, Array, Array, Array]:
    """The gradients (dx_gates, dh0, dc0, dweight): backpropagation through time.

    ``dcells`` is None if the loss does not depend on the cells. The gradient dh of a state is the
    sum of its dstates and of the gradient from the next step. The gradient dc of a cell is the sum
    of its dcells, of the gradient from the next step, and of dh o (1 - tanh(c_t)²), which comes
    through the state. The gradients of the sums inside the gates are da_i = dc g i (1 - i),
    da_f = dc c_{t-1} f (1 - f), da_g = dc i (1 - g²), da_o = dh tanh(c_t) o (1 - o); see
    docs/gradients/recurrence.md.

    >>> h0, c0, weight = np.zeros((1, 1)), np.array([[8.0]]), np.zeros((1, 4))
    >>> saved = lstm(np.zeros((1, 2, 4)), h0, c0, weight)  # i = f = o = 1/2, g = 0: cells 4 and 2
    >>> dstates, dcells = np.zeros((1, 2, 1)), np.ones((1, 2, 1))
    >>> dx_gates, dh0, dc0, dweight = lstm_backward(dstates, dcells, h0, c0, weight, *saved)
    >>> dx_gates[..., 1], dc0  # at t = 0, dc = 1 + f = 1.5, da_f = 1.5 · 8 · 1/4, dc0 = f · 1.5
    (array([[3., 1.]]), array([[0.75]]))
    """
    dx_gates = np.empty_like(gates, dtype=np.result_type(dstates, weight, gates))
    dweight = np.zeros_like(weight)
    dh = np.zeros_like(h0)
    dc = np.zeros_like(c0)
    _, T, _ = states.shape
    for t in reversed(steps(T, reverse)):
        h = state_before(t, states, h0, reverse)
        c = state_before(t, cells, c0, reverse)
        dnew_h = dh + dstates[:, t]
        dnew_c = dc if dcells is None else dc + dcells[:, t]
        da, dh, dc = _lstm_cell_backward(dnew_h, dnew_c, c, cells[:, t], weight, gates[:, t])
        if keep_mask is not None:  # padding passes dh and dc on unchanged
            keep = keep_mask[:, t, None]
            da = np.where(keep, da, 0)
            dh = np.where(keep, dh, dnew_h)
            dc = np.where(keep, dc, dnew_c)
        dx_gates[:, t] = da
        dweight = dweight + h.T @ da
    return dx_gates, dh, dc, dweight
