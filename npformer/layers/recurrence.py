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
    hidden, last = part(params, "hidden"), slice(0, 1) if reverse else slice(-1, None)
    D = len(part(hidden, "weight"))
    if first is None:
        first = tuple(np.zeros_like(x, shape=(len(x), D)) for _ in range(1 if cell == "gru" else 2))
    x_gates, input_backward = linear(ops, part(params, "input"), x)
    if cell == "gru":
        states, gates = ops.gru(x_gates, first[0], hidden["weight"], hidden["bias"], keep_mask, reverse=reverse)
        along: tuple = (states,)
    else:
        states, cells, gates = ops.lstm(x_gates, first[0], first[1], hidden["weight"], keep_mask, reverse=reverse)
        along = states, cells
    end = tuple(x[:, last][:, 0] for x in along) if x.shape[1] else first

    def backward(dstates, dend):
        dalong: Any = [dstates, None] if cell == "lstm" else [dstates]
        if dend is not None and x.shape[1]:
            dalong = [dstates.copy(), *(np.zeros_like(dstates) for _ in dend[1:])]
            for d, d_at_end in zip(dalong, dend, strict=True):
                d[:, last] += d_at_end[:, None]
        if cell == "gru":
            saved: Any = (hidden["weight"], states, gates, keep_mask)
            dgates, *dfirst, dweight, dbias = ops.gru_backward(*dalong, *first, *saved, reverse=reverse)
            hidden_grads = {"weight": dweight, "bias": dbias}
        else:
            saved = (hidden["weight"], states, cells, gates, keep_mask)
            dgates, *dfirst, dweight = ops.lstm_backward(*dalong, *first, *saved, reverse=reverse)
            hidden_grads = {"weight": dweight}
        if dend is not None and not x.shape[1]:
            dfirst = dend
        dx, input_grads = input_backward(dgates)
        return dx, dfirst, {"input": input_grads, "hidden": hidden_grads}

    return states, end, backward


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
