"""The gated recurrent unit along a sequence (Cho et al. 2014)."""

from npformer.reference.activations import sigmoid, tanh
from npformer.reference.arrays import Array, namespace, narrow, quiet, transpose, widen
from npformer.reference.checks import check_shape
from npformer.reference.recurrence import check_recurrence, check_recurrence_backward, state_before, steps


@quiet
def gru(
    x_gates: Array, h0: Array, weight: Array, bias: Array, keep_mask: Array | None = None, *, reverse: bool = False
) -> tuple[Array, Array]:
    """States of a gated recurrent unit: h_t = (1 - z) n + z h_{t-1}.

    The reset gate r = σ(x_r + h U_r), the update gate z = σ(x_z + h U_z), the new state n = tanh(x_n + r (h U_n + b)),
    all of step t, with h = h_{t-1} (equation 5 to 8 of Cho et al. 2014, in the form that cuDNN and PyTorch compute).

    Parameters
    ----------
    x_gates : (B, T, 3D)
        What the input says to r, z and n, side by side: x W + its bias.
    h0 : (B, D)
        The state before the first step.
    weight : (D, 3D)
        U_r, U_z, U_n side by side.
    bias : (D,)
        b, which r multiplies, so that the input's bias cannot stand for it.
    keep_mask : bool (B, T), optional
        False = leave the state as it is at this step: padding.
    reverse : bool
        From the last step to the first.

    Returns
    -------
    states : (B, T, D)
        h_t at each step.
    gates : (B, T, 4D)
        r, z, n and h U_n + b, for the backward pass.

    Examples
    --------
    >>> import numpy as np
    >>> x_gates = np.array([[[0.0, -99.0, 9.0], [0.0, 99.0, -9.0]]])  # z = 0: take the new state; z = 1: keep the old
    >>> states, gates = gru(x_gates, np.zeros((1, 1)), np.zeros((1, 3)), np.zeros(1))
    >>> states.round(3)
    array([[[1.],
            [1.]]])
    """
    xp = namespace(x_gates=x_gates, h0=h0, weight=weight, bias=bias)
    check_recurrence(3, x_gates, keep_mask, weight, h0=h0)
    check_shape(bias=(bias, h0.shape[1:]))
    B, T, D = *x_gates.shape[:2], h0.shape[1]
    dtype = xp.result_type(x_gates, h0, weight, bias)
    states, gates = xp.empty((B, T, D), dtype), xp.empty((B, T, 4 * D), dtype)
    h = widen(h0)
    for t in steps(T, reverse):
        new, gates[:, t] = _gru_cell(widen(x_gates[:, t]), h, weight, bias)
        h = new if keep_mask is None else xp.where(keep_mask[:, t, None], new, h)
        states[:, t] = h
    return states, gates


def _gru_cell(x_gates, h, weight, bias):
    """One step: (B, 3D), (B, D) -> the new state (B, D) and what its backward needs (B, 4D)."""
    xp = namespace(h=h)
    x_r, x_z, x_n = xp.split(x_gates, 3, axis=-1)
    h_r, h_z, h_n = xp.split(h @ weight, 3, axis=-1)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    h_n = h_n + bias
    n = tanh(x_n + r * h_n)
    return (1 - z) * n + z * h, xp.concatenate([r, z, n, h_n], axis=-1)


def _gru_cell_backward(dnew, h, weight, gates):
    """dnew (B, D) -> d x_gates (B, 3D), dh (B, D), and d (h U + b) (B, 3D)."""
    xp = namespace(h=h)
    r, z, n, h_n = xp.split(gates, 4, axis=-1)
    da_n = dnew * (1 - z) * (1 - n * n)  # of what is inside n's tanh
    da_r = da_n * h_n * r * (1 - r)
    da_z = dnew * (h - n) * z * (1 - z)
    dh_gates = xp.concatenate([da_r, da_z, da_n * r], axis=-1)
    dh = dnew * z + dh_gates @ transpose(weight)
    return xp.concatenate([da_r, da_z, da_n], axis=-1), dh, dh_gates


@quiet
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
    """The gradients (dx_gates, dh0, dweight, dbias): back through time, from the last step to the first.

    The gradient of a state, dh, is what arrives from above, dstates, and what the step after it sends back. The sums
    inside the gates get da_n = dh (1 - z) (1 - n²), da_r = da_n (h U_n + b) r (1 - r) and da_z = dh (h - n) z (1 - z);
    section 14 of docs/math.md.
    """
    xp = namespace(dstates=dstates, h0=h0, weight=weight, states=states, gates=gates)
    check_recurrence_backward(3, weight, keep_mask, states, gates, {"h0": h0}, {"dstates": dstates})
    B, T, D = states.shape
    dx_gates = xp.empty((B, T, 3 * D), states.dtype)
    dh, dweight = xp.zeros_like(widen(h0)), xp.zeros_like(widen(weight))
    dbias = xp.zeros(D, dh.dtype)
    for t in reversed(steps(T, reverse)):
        h = widen(state_before(t, states, h0, reverse))
        dh = dh + dstates[:, t]
        dx, dh_through, dh_gates = _gru_cell_backward(dh, h, weight, gates[:, t])
        if keep_mask is not None:  # a step that was left out passes on what it gets, and nothing to anything else
            kept = keep_mask[:, t, None]
            dx, dh_gates = xp.where(kept, dx, 0), xp.where(kept, dh_gates, 0)
            dh_through = xp.where(kept, dh_through, dh)
        dx_gates[:, t], dh = dx, dh_through
        dweight = dweight + transpose(h) @ dh_gates
        dbias = dbias + dh_gates[:, 2 * D :].sum(axis=0)
    return dx_gates, narrow(dh, h0), narrow(dweight, weight), narrow(dbias, h0)
