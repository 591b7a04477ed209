"""Recurrent layers, which read a sequence step by step."""

from collections.abc import Callable
from typing import Any

import numpy as np

from npformer.arrays import Array
from npformer.checks import check_choice
from npformer.errors import UserError
from npformer.layers.projection import linear
from npformer.layers.types import Params
from npformer.reference import Ops


def read_steps(
    ops: Ops,
    params: Params,
    x: Array,
    cell: str,
    *,
    keep_mask: Array | None = None,
    first: Any = None,
    reverse: bool = False,
) -> tuple[Array, tuple, Callable]:
    """A recurrent layer along a sequence.

    Parameters
    ----------
    ops : Ops
    params : {"input": {"weight" (D_in, nD), "bias" (nD,)}, "hidden": {"weight" (D, nD)}}
        n gates side by side: 3 for a GRU, 4 for an LSTM. "hidden" of a GRU also has "bias" (D,).
    x : (B, T, D_in)
    cell : "gru" or "lstm"
    keep_mask : bool (B, T), optional
        False = padding: the state does not change.
    first : (h0,) or (h0, c0), each (B, D), optional
        The initial state; zeros if not given.
    reverse : bool
        Process the steps from the last to the first.

    Returns
    -------
    states : (B, T, D)
    end : (h,) or (h, c)
        The final state, after all steps that are not padding.
    backward : (dstates, dend or None) -> (dx, dfirst, grads)

    Examples
    --------
    >>> from npformer import layers, reference
    >>> from npformer.models.initialization import Initializer
    >>> params = Initializer(seed=0, dtype="float64").recurrence(4, 6, "lstm")
    >>> x = np.ones((2, 3, 4))
    >>> states, (h, c), backward = layers.read_steps(reference.ops, params, x, "lstm")
    >>> states.shape, bool((h == states[:, -1]).all())
    ((2, 3, 6), True)
    >>> dx, (dh0, dc0), grads = backward(np.ones_like(states), None)
    >>> dx.shape, dh0.shape, list(grads)
    ((2, 3, 4), (2, 6), ['input', 'hidden'])
    """
    check_choice("cell", cell, ("gru", "lstm"))
    hidden = params["hidden"]
    n_states = 1 if cell == "gru" else 2
    if first is None:
        first = (np.zeros_like(x, shape=(len(x), len(hidden["weight"]))),) * n_states
    elif len(first) != n_states:
        expected = "(h0,)" if cell == "gru" else "(h0, c0)"
        raise UserError(f"first has {len(first)} arrays, expected {expected}")
    x_gates, input_backward = linear(ops, params["input"], x)
    run = _run_gru if cell == "gru" else _run_lstm
    along, run_backward = run(ops, hidden, x_gates, first, keep_mask, reverse)
    states = along[0]
    has_steps = x.shape[1] > 0
    last = 0 if reverse else -1
    # Without a step the final state is the initial one.
    end = tuple(each[:, last] for each in along) if has_steps else first

    def backward(dstates, dend):
        dcells = None  # nobody sees a cell but at the end, or in the next step
        if dend is not None and has_steps:
            dstates = dstates.copy()
            dstates[:, last] += dend[0]
            if cell == "lstm":
                dcells = np.zeros_like(dstates)
                dcells[:, last] += dend[1]
        dx_gates, dfirst, hidden_grads = run_backward(dstates, dcells)
        if dend is not None and not has_steps:
            dfirst = dend
        dx, input_grads = input_backward(dx_gates)
        return dx, dfirst, {"input": input_grads, "hidden": hidden_grads}

    return states, end, backward


def _run_gru(ops, params, x_gates, first, keep_mask, reverse):
    """The states of a GRU, as a tuple of one array, and the backward pass.

    This is (dstates, None) -> (dx_gates, (dh0,), gradients), as a GRU has no cells.
    """
    weight, bias = params["weight"], params["bias"]
    (h0,) = first
    states, gates = ops.gru(x_gates, h0, weight, bias, keep_mask, reverse=reverse)

    def backward(dstates, dcells):
        dx_gates, dh0, dweight, dbias = ops.gru_backward(
            dstates, h0, weight, states, gates, keep_mask, reverse=reverse
        )
        return dx_gates, (dh0,), {"weight": dweight, "bias": dbias}

    return (states,), backward


def _run_lstm(ops, params, x_gates, first, keep_mask, reverse):
    """The states and the cells of an LSTM, and the backward pass.

    This is (dstates, dcells or None) -> (dx_gates, (dh0, dc0), gradients).
    """
    weight = params["weight"]
    h0, c0 = first
    states, cells, gates = ops.lstm(x_gates, h0, c0, weight, keep_mask, reverse=reverse)

    def backward(dstates, dcells):
        dx_gates, dh0, dc0, dweight = ops.lstm_backward(
            dstates, dcells, h0, c0, weight, states, cells, gates, keep_mask, reverse=reverse
        )
        return dx_gates, (dh0, dc0), {"weight": dweight}

    return (states, cells), backward


def read_both_ways(
    ops: Ops, params: Params, x: Array, cell: str, *, keep_mask: Array | None = None
) -> tuple[Array, tuple, Callable]:
    """A bidirectional recurrent layer: two layers of half the width, one in each direction.

    The states of both directions are side by side, and so are their final states. Parameters and
    results are those of ``read_steps``, except that ``params`` is {"forward", "backward"} and there
    is no ``first``; ``dend`` must not be None, and ``dfirst`` is None.

    Examples
    --------
    >>> from npformer import layers, reference
    >>> from npformer.models.initialization import Initializer
    >>> new = Initializer(seed=0, dtype="float64")
    >>> params = {side: new.recurrence(4, 3, "gru") for side in ("forward", "backward")}
    >>> states, (h,), backward = layers.read_both_ways(
    ...     reference.ops, params, np.ones((2, 5, 4)), "gru"
    ... )
    >>> states.shape, h.shape  # the widths of both directions side by side
    ((2, 5, 6), (2, 6))
    >>> dx, _, grads = backward(np.ones_like(states), (np.zeros_like(h),))
    >>> dx.shape, list(grads)
    ((2, 5, 4), ['forward', 'backward'])
    """
    forward_states, forward_end, forward_backward = read_steps(
        ops, params["forward"], x, cell, keep_mask=keep_mask
    )
    reverse_states, reverse_end, reverse_backward = read_steps(
        ops, params["backward"], x, cell, keep_mask=keep_mask, reverse=True
    )
    states = np.concatenate([forward_states, reverse_states], axis=-1)
    end = tuple(
        np.concatenate(both, axis=-1) for both in zip(forward_end, reverse_end, strict=True)
    )

    def backward(dstates, dend):
        half = dstates.shape[-1] // 2
        dforward_end = [d[:, :half] for d in dend]
        dreverse_end = [d[:, half:] for d in dend]
        dx_of_forward, _, forward_grads = forward_backward(dstates[..., :half], dforward_end)
        dx_of_reverse, _, reverse_grads = reverse_backward(dstates[..., half:], dreverse_end)
        grads = {"forward": forward_grads, "backward": reverse_grads}
        return dx_of_forward + dx_of_reverse, None, grads

    return states, end, backward
