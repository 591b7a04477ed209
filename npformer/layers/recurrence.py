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
    """
    check_choice("cell", cell, ("gru", "lstm"))
    hidden = part(params, "hidden")
    if first is None:
        zeros = np.zeros_like(x, shape=(len(x), len(part(hidden, "weight"))))
        first = (zeros,) if cell == "gru" else (zeros, zeros)
    x_gates, input_backward = linear(ops, part(params, "input"), x)
    along, run_backward = _run(ops, cell, hidden, x_gates, first, keep_mask, reverse)
    is_empty = x.shape[1] == 0
    last = 0 if reverse else -1
    end = first if is_empty else tuple(states[:, last] for states in along)

    def backward(dstates, dend):
        # The state of a cell has a gradient only at the end: above it nobody sees it.
        dalong = [dstates] + [None] * (len(first) - 1)
        if dend is not None and not is_empty:
            dalong = [dstates.copy(), *(np.zeros_like(dstates) for _ in dend[1:])]
            for d, d_at_end in zip(dalong, dend, strict=True):
                d[:, last] += d_at_end
        dgates, dfirst, hidden_grads = run_backward(dalong)
        if dend is not None and is_empty:
            dfirst = dend
        dx, input_grads = input_backward(dgates)
        return dx, dfirst, {"input": input_grads, "hidden": hidden_grads}

    return along[0], end, backward


def _run(ops, cell, params, x_gates, first, keep_mask, reverse):
    """[states] of a GRU or [states, cells] of an LSTM, and the backward pass.

    This is [dstates] or [dstates, dcells] -> (dx_gates, [dh0] or [dh0, dc0], gradients).
    """
    is_gru = cell == "gru"
    run = ops.gru if is_gru else ops.lstm
    run_backward = ops.gru_backward if is_gru else ops.lstm_backward
    names = ["weight", "bias"] if is_gru else ["weight"]
    arrays = [params[name] for name in names]
    *along, gates = run(x_gates, *first, *arrays, keep_mask, reverse=reverse)

    def backward(dalong):
        saved = params["weight"], *along, gates, keep_mask
        dgates, *others = run_backward(*dalong, *first, *saved, reverse=reverse)
        dfirst, darrays = others[: len(first)], others[len(first) :]
        return dgates, dfirst, dict(zip(names, darrays, strict=True))

    return along, backward


def read_both_ways(
    ops: Ops, params: Params, x: Array, cell: str, *, keep_mask: Array | None = None
) -> tuple[Array, tuple, Callable]:
    """A bidirectional recurrent layer: two layers of half the width, one in each direction.

    The states of both directions are side by side, and so are their final states. Parameters and
    results are those of ``read_steps``, except that ``params`` is {"forward", "backward"} and there
    is no ``first``; ``dend`` must not be None, and ``dfirst`` is None.
    """
    forth, forth_end, forth_backward = read_steps(
        ops, part(params, "forward"), x, cell, keep_mask=keep_mask
    )
    back, back_end, back_backward = read_steps(
        ops, part(params, "backward"), x, cell, keep_mask=keep_mask, reverse=True
    )
    half = forth.shape[-1]

    def backward(dstates, dend):
        dforth_end = [d[:, :half] for d in dend]
        dback_end = [d[:, half:] for d in dend]
        dx_forth, _, forth_grads = forth_backward(dstates[..., :half], dforth_end)
        dx_back, _, back_grads = back_backward(dstates[..., half:], dback_end)
        return dx_forth + dx_back, None, {"forward": forth_grads, "backward": back_grads}

    states = np.concatenate([forth, back], axis=-1)
    end = tuple(np.concatenate(pair, axis=-1) for pair in zip(forth_end, back_end, strict=True))
    return states, end, backward
