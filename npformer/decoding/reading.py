"""Reading: the keys and values of texts that are there already, many positions at once.

``read`` has three ways: the function of the backend for a step of few rows, whose rows are then the
positions; texts side by side; and one long text in blocks, each of which a thread takes.
"""

from collections.abc import Callable
from itertools import pairwise, starmap
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.arrays import Array
from npformer.decoding.few_rows import StackStep, takes_integers
from npformer.layers.cache import BlockCache, KeyValueCache
from npformer.layers.decoding import decode_layer, newest_heads
from npformer.layers.sublayer import norm_before
from npformer.operations.host import n_slices
from npformer.quantized import dequantized
from npformer.runtime.threads import FEW_ROWS, in_order

READ_AT_ONCE = 1024  # positions of a text


class Texts(NamedTuple):
    """Texts of equal length, and what is needed to read them."""

    stack: StackStep
    d_model: int
    embed: Callable  # tokens (b, t), and their positions, to vectors (b, t, D)
    ids: Array  # (B, n)
    first: int  # the position from which on the texts are read
    kv: Array  # (N, P, 2*G*K), of which entry b·n + t is that of token t of text b


def read(texts):
    """Write the keys and values of texts, from their first position on."""
    B, n = texts.ids.shape
    stack = texts.stack
    device = stack.ops.device
    n_new = n - texts.first
    n_rows = B * n_new
    has_window = stack.settings.attention.window is not None
    if stack.kernel and takes_integers(stack.layers[0], n_rows) and not has_window:
        device.run_rows(lambda _: _read_in_a_step(texts), 1)
    elif B > 1 or n_rows <= FEW_ROWS:
        positions = slice(texts.first, n)
        device.run_rows(lambda rows: _read_block(texts, positions, rows), B, n_new)
    else:
        _read_long_text(texts)


def _read_in_a_step(texts):
    """Read as a step of decoding, which takes integers as they are: each position is a row."""
    B, n = texts.ids.shape
    # All columns up to each position, aligned right: the newest has to be the last.
    columns = np.arange(texts.first, n)[:, None] - np.arange(n)[::-1]
    at = np.arange(B)[:, None, None] * n + np.maximum(columns, 0)
    positions = np.tile(columns[:, -1], B)
    keep_mask = np.tile(columns >= 0, (B, 1))[:, None, None]
    x = texts.embed(texts.ids[:, texts.first :].reshape(1, -1), at=positions)[0]
    rotary = texts.stack.settings.attention.rotary
    texts.stack(x, KeyValueCache(texts.kv, at.reshape(-1, n), keep_mask, rotary, positions))


def _read_long_text(texts):
    """Read one text by threads, each of which waits for the keys of the blocks before its own."""
    n = texts.ids.shape[1]

    def read_block(block, wait):
        _read_block(texts, block, wait=wait)

    for start in range(texts.first, n, READ_AT_ONCE):  # in between, Ctrl-C ends it
        blocks = _blocks(texts, start, min(start + READ_AT_ONCE, n))
        in_order(texts.stack.ops.device.run_shards, read_block, blocks)


def _blocks(texts, start, stop):
    """Slices of the positions of one text, with about as many multiplications each."""
    n = stop - start
    n_blocks = max(1, min(n_slices(n), n // FEW_ROWS))
    if texts.stack.ops.device.asynchronous:
        n_blocks = 1
    # A late position attends to more before it, so the last blocks have fewer positions.
    of_attention = 4 * texts.d_model * np.arange(start, stop)
    work = np.cumsum(tree.count(texts.stack.layers[0]) + of_attention)
    shares = work[-1] * np.arange(n_blocks + 1) // n_blocks
    edges = start + np.searchsorted(work, shares, side="right")
    return list(starmap(slice, pairwise(edges.tolist())))


def _read_block(texts, block, rows=slice(0, 1), wait=None):
    """Read a block of positions of some texts, one layer after another.

    ``wait`` is that of ``BlockCache``.
    """
    stack = texts.stack
    settings = stack.settings
    n = texts.ids.shape[1]
    entries = slice(rows.start * n, rows.stop * n)
    x = texts.embed(texts.ids[rows, block], at=block)
    x = x.reshape(-1, x.shape[-1])
    # One layer after another: of weights that are integers, the floats of one are in memory.
    for i, params in enumerate(map(dequantized, stack.layers)):
        kv = texts.kv[i, entries].reshape(-1, n, texts.kv.shape[2])[:, : block.stop]
        n_new = block.stop - block.start
        cache = BlockCache(kv, n_new, settings.attention.rotary, wait=wait)
        if i + 1 < len(stack.layers):
            x = decode_layer(stack.ops, params, x, settings, cache)
        else:  # nobody reads the output of the last layer: it only writes keys and values
            h, _ = norm_before(stack.ops, params["attention_norm"], x, settings)
            newest_heads(stack.ops, params["attention"], h, settings.attention, cache)
