"""An encoder of 8-bit integers reads a few words as decoding does, without floats of them."""

import numpy as np

from npformer.decoding.few_rows import StackStep
from npformer.layers.cache import KeyValueCache
from npformer.runtime.threads import FEW_ROWS


def encoded_in_a_step(ops, layers, settings, x, keep_mask):
    """The output of layers of self-attention, as the function for a step of decoding computes it.

    There is no dropout. Each position is a row of the step; its own entry comes last in ``at``,
    where the step writes its key and value.

    Parameters
    ----------
    ops : Ops
    layers : list of dict
        The parameters of each layer, of 8-bit integers.
    settings : LayerSettings
    x : (B, S, D)
    keep_mask : bool (B, 1, 1, S), optional

    Returns
    -------
    (B, S, D)
        None if the step is not for these layers, or if there are many words.
    """
    B, S, D = x.shape
    attention = settings.attention
    has_all_in_sight = not attention.causal and (attention.window is None or attention.window >= S)
    if not has_all_in_sight or not 0 < B * S <= FEW_ROWS:
        return None
    step = StackStep(ops, layers, settings, max_rows=B * S, n_steps=1)
    places = np.arange(S)
    columns = (places[:, None] + places + 1) % S  # each position sees all, itself last
    first = S * np.arange(B)[:, None, None]
    at = (first + columns).reshape(-1, S)
    if keep_mask is not None:
        keep_mask = keep_mask[:, 0, 0][:, columns].reshape(-1, 1, 1, S)
    kv = np.empty((len(layers), B * S, sum(attention.widths(D)[1:])), x.dtype)
    cache = KeyValueCache(kv, at, keep_mask, attention.rotary, np.tile(places, B))
    rows = x.reshape(-1, D)
    # One part of all rows: the threads share its products.
    [y] = ops.device.run_rows(lambda _: step.by_kernel(rows, cache), 1)
    return None if y is NotImplemented else y.reshape(x.shape)
