"""An encoder of 8-bit integers reads a few words as decoding does, without floats of them."""

import numpy as np

from npformer.decoding.few_rows import StackStep, takes_integers
from npformer.layers.cache import KeyValueCache


def step_of_few_words(ops, layers, settings, shape):
    """The step of decoding that computes layers of self-attention for words (B, S), or None.

    There is none if the weights are no integers of 8 bits, if there are many words, if a word does
    not see all of its sentence, or if the backend has no kernel. There is no dropout.
    """
    B, S = shape
    attention = settings.attention
    sees_all = not attention.causal and (attention.window is None or attention.window >= S)
    n_words = B * S
    if not (sees_all and n_words and any(takes_integers(layer, n_words) for layer in layers)):
        return None
    step = StackStep(ops, layers, settings, max_rows=n_words, n_steps=1)
    return None if step.kernel is None else step


def encoded_in_a_step(step, x, keep_mask):
    """The output of the last layer for x (B, S, D); ``keep_mask`` is (B, 1, 1, S), or None.

    Each position is a row of the step; its own entry comes last in ``at``, where the step writes
    its key and value.
    """
    B, S, D = x.shape
    attention = step.settings.attention
    places = np.arange(S)
    columns = (places[:, None] + places + 1) % S  # each position sees all, itself last
    first = S * np.arange(B)[:, None, None]
    at = (first + columns).reshape(-1, S)
    if keep_mask is not None:
        keep_mask = keep_mask[:, 0, 0][:, columns].reshape(-1, 1, 1, S)
    kv = np.empty((len(step.layers), B * S, sum(attention.widths(D)[1:])), x.dtype)
    cache = KeyValueCache(kv, at, keep_mask, attention.rotary, np.tile(places, B))
    rows = x.reshape(-1, D)
    # One part of all rows: the threads share its products.
    [y] = step.ops.device.run_rows(lambda _: step(rows, cache), 1)
    return y.reshape(x.shape)
