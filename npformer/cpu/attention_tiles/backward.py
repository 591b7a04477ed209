"""The backward pass: the weights of each pair of tiles are made again, and passed on to the
gradients of the queries and keys.

A thread computes all heads of queries that share one of keys and values, as they add to the same
gradients.
"""

from itertools import chain, islice

import numpy as np

from npformer.cpu.attention_tiles.calls import all_heads, of_any_layout
from npformer.cpu.attention_tiles.heads import (
    Heads,
    copy_columns,
    copy_rows,
    copy_without_nan,
    edges_are_finite,
    fetch,
)
from npformer.cpu.attention_tiles.scores import differentiate
from npformer.cpu.attention_tiles.tile import KEYS, QUERIES, Tile, is_hidden, n_visible
from npformer.cpu.jit import inlined
from npformer.cpu.padded import TILE_ROWS, multiply_columns, multiply_padded, with_room
from npformer.cpu.scalar import like


def attend_backward(dout, heads, saved, gradients, options):
    """Write the gradients (dq, dk, dv) of the heads (q, k, v, out), from what ``attend`` saved.

    Returns that of the bias (B, H, 1 or T, S), or None, if there is none; or ``NotImplemented``.
    """
    heads = Heads(*heads)
    dheads = Heads(*gradients, dout)
    saved = tuple(saved)
    q, _, v, _ = heads
    bias = options.bias
    dbias = None if bias is None else np.zeros((*q.shape[:2], *bias.shape[2:]), q.dtype)

    def work(part):
        return _attend_backward(heads, dheads, saved, dbias, _room(q, v), options, part)

    B, G = v.shape[:2]
    if not all_heads(work, B * G, heads):
        return NotImplemented  # as in the forward pass
    return dbias


def _room(q, v):
    """Matrices ``with_room``, in four tuples: for all queries of the heads that share keys, for a
    tile of keys, for a pair of tiles, and for row sums.
    """
    T, K = q.shape[2:]
    S, Kv = v.shape[2:]
    n_shared = q.shape[1] // v.shape[1]
    m = min(T, QUERIES)
    n = min(S, KEYS)
    query_shapes = [(n_shared, T, K), (n_shared, T, Kv), (n_shared, T, K), (n_shared, T)]
    key_shapes = [(K, n), (Kv, n), (n, K), (n, K), (n, Kv)]
    pair_shapes = [(m, n), (m, n), (2, n)]
    sum_shapes = [(Kv, TILE_ROWS), (TILE_ROWS, TILE_ROWS)]
    groups = (query_shapes, key_shapes, pair_shapes, sum_shapes)
    matrices = iter(with_room(chain(*groups), q.dtype))
    return tuple(tuple(islice(matrices, len(group))) for group in groups)


@of_any_layout
def _attend_backward(heads, dheads, saved, dbias, room, options, part):
    """Write the gradients of a part of the groups of heads. Returns whether all are finite.

    A group has the heads of queries that share a head of keys and values.
    """
    # Each record is unpacked once: numba counts the references to an array, and each use of a field
    # and each call that gets the array updates the count. So the products of a pair of tiles, which
    # need nearly all of these, stand in the loop: in a function of their own, 10 words in heads of
    # width 16 took 1.12 times as long.
    q, k, v, out = heads
    dq, dk, dv, dout = dheads
    peak, total = saved
    of_queries, of_keys, of_pair, of_sums = room
    q_rows, dout_rows, dq_rows, row_sums = of_queries
    k_columns, v_columns, k_tile, dk_tile, dv_tile = of_keys
    scores, dweights, kept_and_slopes = of_pair
    _, H, T, K = q.shape
    _, G, S, Kv = v.shape
    n_shared = H // G
    scale = options.scale
    one = like(options.scale, 1)
    finite = True
    kept_and_slopes[0, :] = options.kept_scale  # 1 where nothing is dropped
    first, end = part
    for group in range(first, end):
        b = group // G
        g = group % G
        if QUERIES >= T and (g == 0 or group == first):  # a new sequence
            scores[0, 0] = fetch((q, k, v, dout, dq, dk, dv), b)
        for i in range(n_shared):
            h = g * n_shared + i
            copy_rows(q[b, h], q_rows[i])
            copy_rows(dout[b, h], dout_rows[i])
            if S > KEYS:
                _sum_rows(dout_rows[i], out[b, h], of_sums, row_sums[i])
        dq_rows[:] = 0
        # Keys outside, queries inside: dk and dv of a tile stay in the cache until they are whole.
        for s in range(0, S, KEYS):
            n_keys = min(KEYS, S - s)
            copy_columns(k[b, g, s : s + n_keys], k_columns)
            copy_columns(v[b, g, s : s + n_keys], v_columns)
            copy_without_nan(k[b, g, s : s + n_keys], k_tile)
            dk_tile[:] = 0
            dv_tile[:] = 0
            for i in range(n_shared):
                h = g * n_shared + i
                for t in range(0, T, QUERIES):
                    m = min(QUERIES, T - t)
                    n_seen = n_visible(t + m - 1, T, S, options.causal) - s
                    # Gradients are written in whole tiles of rows.
                    n = min(n_keys, -(-n_seen // TILE_ROWS) * TILE_ROWS)
                    tile = Tile(b, h, t, s, m, n, H, T, S)
                    if n <= 0 or is_hidden(options.keep_mask, tile):
                        continue
                    q_tile = q_rows[i, t:]
                    dout_tile = dout_rows[i, t:]
                    dq_tile = dq_rows[i, t:]
                    statistics = peak[b, h, t:], total[b, h, t:], row_sums[i, t:]
                    # scores = scale q kᵀ, ddropped = dout vᵀ
                    multiply_padded(q_tile, k_columns, scores, (m, n, K), scale, False)
                    multiply_padded(dout_tile, v_columns, dweights, (m, n, Kv), one, False)
                    differentiate(
                        scores, dweights, kept_and_slopes, tile, statistics, dbias, options
                    )
                    dropped, dscores = scores, dweights  # it worked in place
                    # dv += droppedᵀ dout, dk += scale dscoresᵀ q, dq += scale dscores k
                    multiply_columns(dropped, dout_tile, dv_tile, (n, Kv, m), one, True)
                    multiply_columns(dscores, q_tile, dk_tile, (n, K, m), scale, True)
                    multiply_padded(dscores, k_tile, dq_tile, (m, K, n), scale, True)
            finite &= _write_keys(dk_tile, dk[b, g, s : s + n_keys])
            finite &= _write_keys(dv_tile, dv[b, g, s : s + n_keys])
        for i in range(n_shared):
            finite &= _write_queries(dq_rows[i], dq[b, g * n_shared + i])
    return finite


@inlined
def _write_queries(dq_rows, dq):
    """Write the gradient of the queries of a head. Returns whether it is finite, by the edges of
    each tile.
    """
    finite = True
    copy_rows(dq_rows, dq)
    for t in range(0, len(dq), QUERIES):
        finite &= edges_are_finite(dq[t : t + QUERIES])
    return finite


@inlined
def _write_keys(dx_tile, dx):
    """Write the gradient of a tile of keys or values. Returns whether it is finite.

    Its edges tell: each pair of tiles that was not skipped has added products to its first row and
    its first column.
    """
    n, width = dx.shape
    copy_rows(dx_tile, dx)
    return edges_are_finite(dx_tile[:n, :width])


@inlined
def _sum_rows(dout, out, room, row_sums):
    """Σ dout · out of each row.

    The product that gives the gradients of the weights computes it, with all pairs of ``TILE_ROWS``
    rows. So it is rounded as they are: a query that sees one key only, whose value is its output,
    subtracts the very number, and the gradient of the score is 0.
    """
    columns, products = room
    T, Kv = out.shape
    one = like(dout[0, 0], 1)
    for t in range(0, T, TILE_ROWS):
        n = min(TILE_ROWS, T - t)
        copy_columns(out[t : t + n], columns)
        multiply_padded(dout[t:], columns, products, (n, n, Kv), one, False)
        for i in range(n):
            row_sums[t + i] = products[i, i]
