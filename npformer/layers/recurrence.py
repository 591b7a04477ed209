"""Recurrent layers, which read a sequence step by step."""

from collections.abc import Callable
from typing import Any

import numpy as np

from npformer.arrays import Array
from npformer.checks import check_choice
from npformer.layers.projection import linear
from npformer.layers.types import Params, part
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
    params : {"input": {"weight" (D_in, nD), "bias" (nD,)}, "hidden": {"weight" (D, nD)} and, of a GRU, {"bias" (D,)}}
        n gates side by side: 3 for a GRU, 4 for an LSTM.
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
    """
    check_choice("cell", cell, ("gru", "lstm"))
    hidden = part(params, "hidden")
    D, n_states = len(part(hidden, "weight")), 1 if cell == "gru" else 2
    if first is None:
        first = (np.zeros_like(x, shape=(len(x), D)),) * n_states
    x_gates, input_backward = linear(ops, part(params, "input"), x)
    run = _gru if cell == "gru" else _lstm
    along, run_backward = run(ops, hidden, x_gates, first, keep_mask, reverse)
    last = slice(0, 1) if reverse else slice(-1, None)
    is_empty = x.shape[1] == 0
    end = first if is_empty else tuple(x[:, last][:, 0] for x in along)

    def backward(dstates, dend):
        dalong = [dstates] + [None] * (n_states - 1)
        if dend is not None and not is_empty:
            dalong = [dstates.copy(), *(np.zeros_like(dstates) for _ in dend[1:])]
            for d, d_at_end in zip(dalong, dend, strict=True):
                d[:, last] += d_at_end[:, None]
        dgates, dfirst, hidden_grads = run_backward(dalong)
        if dend is not None and is_empty:
            dfirst = dend
        dx, input_grads = input_backward(dgates)
        return dx, dfirst, {"input": input_grads, "hidden": hidden_grads}

    return along[0], end, backward


def _gru(ops, params, x_gates, first, keep_mask, reverse):
    """(states,) of a GRU, and the backward pass: [dstates] -> (dx_gates, [dh0], gradients)."""
    weight, bias = params["weight"], params["bias"]
    states, gates = ops.gru(x_gates, *first, weight, bias, keep_mask, reverse=reverse)

    def backward(dalong):
        saved = weight, states, gates, keep_mask
        dgates, *dfirst, dweight, dbias = ops.gru_backward(*dalong, *first, *saved, reverse=reverse)
        return dgates, dfirst, {"weight": dweight, "bias": dbias}

    return (states,), backward


def _lstm(ops, params, x_gates, first, keep_mask, reverse):
    """(states, cells) of an LSTM, and the backward pass.

    This is [dstates, dcells] -> (dx_gates, [dh0, dc0], gradients).
    """
    weight = params["weight"]
    states, cells, gates = ops.lstm(x_gates, *first, weight, keep_mask, reverse=reverse)

    def backward(dalong):
        saved = weight, states, cells, gates, keep_mask
        dgates, *dfirst, dweight = ops.lstm_backward(*dalong, *first, *saved, reverse=reverse)
        return dgates, dfirst, {"weight": dweight}

    return (states, cells), backward


def read_both_ways(
    ops: Ops, params: Params, x: Array, cell: str, *, keep_mask: Array | None = None
) -> tuple[Array, tuple, Callable]:
    """A bidirectional recurrent layer: two layers of half the width, one in each direction.

    The states of both directions are side by side, and so are their final states. Parameters and results are those of
    ``read_steps``, except that ``params`` is {"forward", "backward"} and there is no ``first``; ``dend`` must not be
    None, and ``dfirst`` is None.
    """
    forth, forth_end, forth_backward = read_steps(ops, part(params, "forward"), x, cell, keep_mask=keep_mask)
    back, back_end, back_backward = read_steps(
        ops, part(params, "backward"), x, cell, keep_mask=keep_mask, reverse=True
    )
    half = forth.shape[-1]

    def backward(dstates, dend):
        dx_forth, _, forth_grads = forth_backward(dstates[..., :half], [d[:, :half] for d in dend])
        dx_back, _, back_grads = back_backward(dstates[..., half:], [d[:, half:] for d in dend])
        return dx_forth + dx_back, None, {"forward": forth_grads, "backward": back_grads}

    end = tuple(np.concatenate(pair, axis=-1) for pair in zip(forth_end, back_end, strict=True))
    return np.concatenate([forth, back], axis=-1), end, backward
