"""Reading: the keys and values of texts that are there already, many positions at once.

``read`` has three ways: the function of the backend for a step of few rows, whose rows are then the
positions; texts side by side; and one long text in blocks, each of which a thread takes.
"""

from itertools import pairwise, starmap

import numpy as np

from npformer import tree
from npformer.layers.cache import BlockCache, KeyValueCache
from npformer.layers.decoding import decode_layer, newest_heads
from npformer.layers.sublayer import norm_before
from npformer.operations.host import n_slices
from npformer.quantized import dequantized, is_quantized
from npformer.runtime.threads import FEW_ROWS, in_order

READ_AT_ONCE = 1024  # positions of a text


def read(decoder, ids, first, kv):
    """Write the keys and values of texts (B, n), from position ``first`` on, into ``kv``.

    ``decoder`` is a ``LanguageDecoder``, and ``kv`` is (N, P, 2*G*K), of which entry b·n + t is
    that of token t of text b.
    """
    B, n = ids.shape
    device, stack = decoder.ops.device, decoder.stack
    n_rows = B * (n - first)
    has_window = stack.settings.attention.window is not None
    if stack.kernel and is_quantized(stack.layers[0]) and n_rows <= FEW_ROWS and not has_window:
        device.run_rows(lambda _: _read_in_a_step(decoder, ids, first, kv), 1)
    elif B > 1 or n_rows <= FEW_ROWS:
        positions = slice(first, n)
        device.run_rows(lambda texts: _read_block(decoder, ids, positions, kv, texts), B, n - first)
    else:
        _read_long_text(decoder, ids, first, kv)


def _read_in_a_step(decoder, ids, first, kv):
    """Read as a step of decoding, which takes integers as they are: each position is a row."""
    B, n = ids.shape
    # All columns up to each position, aligned right: the newest has to be the last.
    columns = np.arange(first, n)[:, None] - np.arange(n)[::-1]
    at = np.arange(B)[:, None, None] * n + np.maximum(columns, 0)
    positions = np.tile(columns[:, -1], B)
    keep_mask = np.tile(columns >= 0, (B, 1))[:, None, None]
    x = decoder.embed(ids[:, first:].reshape(1, -1), at=positions)[0]
    rotary = decoder.stack.settings.attention.rotary
    decoder.stack(x, KeyValueCache(kv, at.reshape(-1, n), keep_mask, rotary, positions))


def _read_long_text(decoder, ids, first, kv):
    """Read one text by threads, each of which waits for the keys of the blocks before its own."""
    n = ids.shape[1]

    def read_block(block, wait):
        _read_block(decoder, ids, block, kv, wait=wait)

    for start in range(first, n, READ_AT_ONCE):  # in between, Ctrl-C ends it
        blocks = _blocks(decoder, start, min(start + READ_AT_ONCE, n))
        in_order(decoder.ops.device.run_shards, read_block, blocks)


def _blocks(decoder, start, stop):
    """Slices of the positions of one text, with about as many multiplications each."""
    n = stop - start
    n_blocks = max(1, min(n_slices(n), n // FEW_ROWS))
    if decoder.ops.device.asynchronous:
        n_blocks = 1
    # A late position attends to more before it, so the last blocks have fewer positions.
    of_attention = 4 * decoder.model.d_model * np.arange(start, stop)
    work = np.cumsum(tree.count(decoder.stack.layers[0]) + of_attention)
    shares = work[-1] * np.arange(n_blocks + 1) // n_blocks
    edges = start + np.searchsorted(work, shares, side="right")
    return list(starmap(slice, pairwise(edges.tolist())))


def _read_block(decoder, ids, block, kv, texts=slice(0, 1), wait=None):
    """Read a block of positions of some texts, one layer after another.

    ``wait`` is that of ``BlockCache``.
    """
    stack, ops, n = decoder.stack, decoder.ops, ids.shape[1]
    settings = stack.settings
    entries = slice(texts.start * n, texts.stop * n)
    x = decoder.embed(ids[texts, block], at=block)
    x = x.reshape(-1, x.shape[-1])
    # One layer after another: of weights that are integers, the floats of one are in memory.
    for i, params in enumerate(map(dequantized, stack.layers)):
        of_texts = kv[i, entries].reshape(-1, n, kv.shape[2])[:, : block.stop]
        n_new = block.stop - block.start
        cache = BlockCache(of_texts, n_new, settings.attention.rotary, wait=wait)
        if i + 1 < len(stack.layers):
            x = decode_layer(ops, params, x, settings, cache)
        else:  # nobody reads the output of the last layer: it only writes keys and values
            h, _ = norm_before(ops, params["attention_norm"], x, settings)
            newest_heads(ops, params["attention"], h, settings.attention, cache)
