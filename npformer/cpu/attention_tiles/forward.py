"""The forward pass: the output of some queries is gathered from one tile of keys after another."""

import numpy as np

from npformer.cpu.attention_tiles.calls import all_heads, of_any_layout
from npformer.cpu.attention_tiles.heads import Heads, copy_columns, copy_rows, fetch
from npformer.cpu.attention_tiles.scores import weigh
from npformer.cpu.attention_tiles.tile import KEYS, QUERIES, Tile, is_hidden, n_visible
from npformer.cpu.jit import inlined
from npformer.cpu.padded import multiply_padded, with_room
from npformer.cpu.rows import contiguous
from npformer.cpu.scalar import like


def attend(q, k, v, out, options):
    """Write ``out`` (B, H, T, Kv) and return (peak, total) (B, H, T), or ``NotImplemented``.

    They are, for each query, its largest score, -inf if it sees no key, and Σ exp(score - peak).
    """
    heads = Heads(q, k, v, out)
    B, H, T, _ = q.shape
    saved = np.empty((B, H, T), q.dtype), np.empty((B, H, T), q.dtype)

    def work(part):
        return _attend(heads, saved, _room(q, v), options, part)

    if not all_heads(work, B * H, heads):
        return NotImplemented  # the reference handles NaN or inf that the mask should hide
    return saved


def _room(q, v):
    """Matrices ``with_room``: keys and values of a head, then queries, output and scores of a
    tile.
    """
    T, K = q.shape[2:]
    S, Kv = v.shape[2:]
    m = min(T, QUERIES)
    n = min(S, KEYS)
    return with_room([(-(-S // KEYS), K, n), (S, Kv), (m, K), (m, Kv), (m, n)], q.dtype)


@of_any_layout
def _attend(heads, saved, room, options, part):
    """Write the output of a part of the heads, and what is saved. Returns whether all is finite."""
    # Each record is unpacked once: numba counts each use of a field.
    q, k, v, out = heads
    peak, total = saved
    k_columns, v_rows, q_tile, gathered, scores = room
    _, H, T, K = q.shape
    _, G, S, Kv = v.shape
    n_shared = H // G
    scale = options.scale
    finite = True
    first, end = part
    for head in range(first, end):
        b = head // H
        h = head % H
        g = h // n_shared
        peak[b, h] = -np.inf
        total[b, h] = 0
        if QUERIES >= T and (h == 0 or head == first):  # a new sequence
            scores[0, 0] = fetch((q, k, v), b)
        # The next heads of queries share these keys and values, and all their tiles do.
        if h % n_shared == 0 or head == first:
            for s in range(0, S, KEYS):
                copy_columns(k[b, g, s : s + KEYS], k_columns[s // KEYS])
            copy_rows(v[b, g], v_rows)
        for t in range(0, T, QUERIES):
            m = min(QUERIES, T - t)
            copy_rows(q[b, h, t : t + m], q_tile)
            n_seen = n_visible(t + m - 1, T, S, options.causal)
            goes_on = False  # whether there was a tile of these queries
            for s in range(0, n_seen, KEYS):
                n = min(KEYS, n_seen - s)
                tile = Tile(b, h, t, s, m, n, H, T, S)
                if is_hidden(options.keep_mask, tile):
                    continue
                # scores = scale q kᵀ; gathered += dropout(exp(scores - peak)) v
                multiply_padded(q_tile, k_columns[s // KEYS], scores, (m, n, K), scale, False)
                weigh(scores, tile, goes_on, gathered, peak[b, h, t:], total[b, h, t:], options)
                multiply_padded(scores, v_rows[s:], gathered, (m, Kv, n), like(scale, 1), goes_on)
                goes_on = True
            finite &= _divide(gathered, out[b, h, t : t + m], total[b, h, t:], options.kept_scale)
    return finite


@inlined
def _divide(gathered, out, total, kept_scale):
    """out = gathered / total, for a tile, or 0 where total is 0. Returns whether the output is
    finite.
    """
    zero = like(kept_scale, 0)
    sum_of_zeros = zero  # 0 times NaN or infinity is NaN; a count would not be vectorised
    for t in range(len(out)):
        row = contiguous(out[t])
        if total[t] == zero:
            for c in range(len(row)):
                row[c] = zero
            continue
        factor = kept_scale / total[t]
        for c in range(len(row)):
            row[c] = gathered[t, c] * factor
        for c in range(len(row)):  # not in the loop above, which would round differently
            sum_of_zeros += row[c] * zero
    return sum_of_zeros == zero
