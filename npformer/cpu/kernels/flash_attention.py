"""Attention in tiles. A tile is a few queries and keys of one head, so few that their scores stay
in the cache.

The rows of a head are short and far apart, so its matrices are copied before they are multiplied,
once for all tiles. A thread computes whole heads without returning to Python. The kernels work in
place: scores become weights, and in the backward pass gradients of the weights become gradients of
the scores. Tiles of keys that are hidden from all queries of a tile, by the causal mask or by a
mask with a row for each query, are skipped. H heads of queries may share G heads of keys and
values, H / G each; in the backward pass a thread computes all that share one, as they add to the
same gradients.
"""

import inspect
from typing import NamedTuple

import numba
import numpy as np

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.compiling import does_nothing
from npformer.cpu.jit import if_given, inlined, kernel
from npformer.cpu.kernels.dropout import drawing
from npformer.cpu.padded import ROWS, multiply_columns, multiply_padded, with_room
from npformer.cpu.rows import contiguous, copy_row
from npformer.cpu.scalar import exp_negative, is_kept, largest, like, tanh
from npformer.reference.math.attention import scale_of, summed_to
from npformer.reference.math.flash_attention import results_of
from npformer.runtime.memory import empty
from npformer.runtime.threads import MOST_PARTS, WORTH_A_PART, even_slices, in_parallel

# The most per tile. A column of it (a line per query) is read from the first-level cache, the whole
# of it (96 KB of float32 scores) and what it is multiplied by from the second.
QUERIES, KEYS = 96, 256
assert QUERIES % ROWS == 0  # so that a tile of queries begins with a whole tile of rows
OF_A_HEAD = 2**17  # multiplications that take as long as the copies of the matrices of a short head
NO_MASK = np.ones((1, 1, 1, 0), bool)


# The fields of AttentionOptions that these kernels know.
KNOWN = "causal scale dropout_rate softcap"


class KernelOptions(NamedTuple):
    """The arguments of the kernels besides arrays; ``draw`` and ``kept_scale`` are for dropout.

    What is None is not compiled into a kernel. There is always a mask, and always a draw, so that
    one kernel serves all attentions of most trainings: it is compiled for seconds.
    """

    keep_mask: np.ndarray  # (1 or B, 1 or H, 1 or T, S), or NO_MASK
    bias: np.ndarray | None  # the same
    causal: bool
    scale: float
    draw: tuple
    kept_scale: float
    softcap: float | None


class Tile(NamedTuple):
    """The place of a tile in the scores (B, H, T, S): some queries and keys of one head, and the
    first of them.
    """

    b: int
    h: int
    t: int
    s: int
    n_queries: int
    n_keys: int
    H: int
    T: int
    S: int


@kernel_of(reference.flash_attention, as_it_lies="q k v", knows=KNOWN)
def flash_attention(q, k, v, keep_mask, bias, options, dropout_key, return_peak):
    for_kernel = kernel_options(q, k, keep_mask, bias, options, dropout_key)
    q4, k4, v4 = as_heads(q), as_heads(k), as_heads(v)
    out = _empty_heads(q4, v4)
    saved = attend(q4, k4, v4, out, for_kernel)
    if saved is NotImplemented:
        return NotImplemented
    peak, total = (x.reshape(q.shape[:-1]) for x in saved)
    return results_of(out.reshape(*q.shape[:-1], v.shape[-1]), peak, total, return_peak)


@kernel_of(reference.flash_attention_backward, as_it_lies="dout q k v out", knows=KNOWN)
def flash_attention_backward(
    dout, q, k, v, out, logsumexp, keep_mask, bias, options, dropout_key, peak
):
    for_kernel = kernel_options(q, k, keep_mask, bias, options, dropout_key)
    q4, k4, v4 = as_heads(q), as_heads(k), as_heads(v)
    if peak is None:
        # A forward pass finds it, of one column of the values, as the output is not needed.
        draw, kept_scale = drawing(0.0, None, q.dtype)
        without_dropout = for_kernel._replace(draw=draw, kept_scale=kept_scale)
        saved = attend(q4, k4, v4[..., :1], _empty_heads(q4, v4[..., :1]), without_dropout)
        if saved is NotImplemented:
            return NotImplemented
    else:
        saved = (x.reshape(q4.shape[:-1]) for x in (peak, np.exp(logsumexp)))
    gradients = tuple(empty(x.shape, x.dtype) for x in (q4, k4, v4))
    dbias = attend_backward(
        as_heads(dout), as_heads(out), q4, k4, v4, *saved, gradients, for_kernel
    )
    if dbias is NotImplemented:
        return NotImplemented
    gradients = tuple(
        gradient.reshape(x.shape) for gradient, x in zip(gradients, (q, k, v), strict=True)
    )
    return gradients if bias is None else (*gradients, of_bias(dbias, bias, q))


def _empty_heads(q, v):
    """A new array (B, H, T, Kv), whose heads lie side by side."""
    B, H, T, _ = q.shape
    return empty((B, T, H, v.shape[-1]), q.dtype).swapaxes(1, 2)


def as_heads(x):
    """(..., T, K) as (B, H, T, K), in which the rows of each head are contiguous."""
    row_step = x.strides[-2]
    if x.strides[-1] != x.itemsize or row_step < x.shape[-1] * x.itemsize:
        x = np.ascontiguousarray(x)
    if x.ndim == 4:
        return x
    return x[(None,) * (4 - x.ndim)] if x.ndim < 4 else x.reshape(-1, *x.shape[-3:])


def kernel_options(q, k, keep_mask, bias, options, dropout_key):
    """The options, ``AttentionOptions``, in the form that the kernels take. Without a key nothing
    is dropped.
    """
    number, S = q.dtype.type, k.shape[-2]
    hides = keep_mask is not None and np.count_nonzero(keep_mask) < keep_mask.size
    mask = with_four_axes(keep_mask, q.shape, S) if hides else NO_MASK
    bias = None if bias is None else with_four_axes(bias, q.shape, S)
    scale = number(scale_of(q.shape[-1], options.scale))
    dropout_rate = 0.0 if dropout_key is None else options.dropout_rate
    softcap = None if options.softcap is None else number(options.softcap)
    return KernelOptions(
        mask, bias, options.causal, scale, *drawing(dropout_rate, dropout_key, q.dtype), softcap
    )


def with_four_axes(x, q_shape, S):
    """A mask or bias that broadcasts to the scores as (1 or B, 1 or H, 1 or T, S)."""
    x = x.reshape((1,) * (4 - x.ndim) + x.shape)
    if x.shape[-1] == S and len(q_shape) <= 4:
        return x
    leading = q_shape[:-3] if len(q_shape) > 4 else x.shape[:1]
    whole = np.broadcast_to(x, (*leading, *x.shape[-3:-1], S))
    return whole.copy().reshape(-1, *whole.shape[-3:])


def attend(q, k, v, out, options):
    """Write ``out`` (B, H, T, Kv), whose heads lie side by side, and return (peak, total), or
    ``NotImplemented``.

    They are, for each query, its largest score, -inf if it sees no key, and Σ exp(score - peak).
    """
    B, H, T, _ = q.shape
    out = out.swapaxes(1, 2)
    peak, total = np.empty((B, H, T), q.dtype), np.empty((B, H, T), q.dtype)

    def work(heads):
        return _attend(q, k, v, out, peak, total, _room(q, v), options, *heads)

    if not _of_all_heads(work, B * H, q, v):
        return NotImplemented  # the reference handles NaN or inf that the mask should hide
    return peak, total


def attend_backward(dout, out, q, k, v, peak, total, gradients, options):
    """Write the gradients (dq, dk, dv), and return that of the bias (B, H, 1 or T, S), or None, if
    there is none.

    Or return ``NotImplemented``.
    """
    bias = options.bias
    dbias = None if bias is None else np.zeros((*q.shape[:2], *bias.shape[2:]), q.dtype)

    def work(groups):
        arrays = (q, k, v, dout, out, peak, total, *gradients, dbias, _backward_room(q, v))
        return _attend_backward(*arrays, options, *groups)

    B, G = v.shape[:2]
    return dbias if _of_all_heads(work, B * G, q, v) else NotImplemented  # as above


def of_bias(dbias, bias, q):
    """The gradient of a bias, from that for each head."""
    return summed_to(dbias.reshape(*q.shape[:-2], *dbias.shape[2:]), bias.shape)


# A kernel unpacks its room once: numba counts each use of a field of a record.


def _room(q, v):
    """Matrices ``with_room`` for the tiles of a thread, and for all keys of a head, in the order of
    ``_attend``.
    """
    (T, K), (S, Kv) = q.shape[2:], v.shape[2:]
    m, n = min(T, QUERIES), min(S, KEYS)
    return with_room([(-(-S // KEYS), K, n), (S, Kv), (m, K), (m, Kv), (m, n)], q.dtype)


def _backward_room(q, v):
    """The same for ``_attend_backward``, and for all queries of the heads that share keys."""
    (T, K), (S, Kv), share = q.shape[2:], v.shape[2:], q.shape[1] // v.shape[1]
    m, n = min(T, QUERIES), min(S, KEYS)
    of_queries = [(share, T, K), (share, T, Kv), (share, T, K), (share, T)]
    of_keys = [(K, n), (Kv, n), (n, K), (n, K), (n, Kv)]
    return with_room(
        [*of_queries, *of_keys, (m, n), (m, n), (2, n), (Kv, ROWS), (ROWS, ROWS)], q.dtype
    )


def _of_all_heads(work, n_heads, q, v):
    """Whether ``work`` returns True for all heads, 0 … n_heads - 1, which are divided evenly
    between threads.
    """
    B, H, T, K = q.shape
    n_products = B * H * (T * v.shape[2] * K + OF_A_HEAD)
    n = min(n_heads, n_products // WORTH_A_PART, MOST_PARTS)
    if n < 2:
        return work((0, n_heads))
    return all(in_parallel(work, [(part.start, part.stop) for part in even_slices(n_heads, n)]))


@inlined
def edges_are_finite(product):
    """Whether no factor of this matrix product holds NaN or inf.

    In the left factor it makes a whole row of the product NaN or inf, in the right factor a whole
    column. So it is enough to check the first column and the first row.
    """
    n_wrong = 0
    for i in range(product.shape[0]):
        n_wrong += not np.isfinite(product[i, 0])
    for j in range(product.shape[1]):
        n_wrong += not np.isfinite(product[0, j])
    return n_wrong == 0


def _of_any_layout(names):
    """Decorate a kernel that is compiled once for all layouts of the arrays with these names.

    Its first argument is one of them, and its last three are the options and a range.
    """

    def decorate(function):
        if numba.config.DISABLE_JIT:
            return function
        compiled, entries = kernel(function), {}
        parameters = inspect.signature(function).parameters

        def compile_for(arguments):
            kinds = dict(zip(parameters, map(numba.typeof, arguments), strict=True))
            for name in names.split():
                kinds[name] = kinds[name].copy(layout="A")
            return compiled.compile(tuple(kinds.values()))

        def call(*arguments):
            options = arguments[-3]
            key = arguments[0].dtype, *map(type, options)
            entry = entries.get(key) or compile_for(arguments)
            if entry is not does_nothing:
                entries[key] = entry
            return entry(*arguments)

        return call

    return decorate


@_of_any_layout("q k v")
def _attend(q, k, v, out, peak, total, room, options, first, end):
    _, H, T, K = q.shape
    _, G, S, Kv = v.shape
    share, scale, one, finite = H // G, options.scale, like(options.scale, 1), True
    k_columns, v_rows, q_tile, sums, scores = room
    for head in range(first, end):
        b, h = head // H, head % H
        g = h // share
        peak[b, h] = -np.inf
        total[b, h] = 0
        if QUERIES >= T and (h == 0 or head == first):
            scores[0, 0] = _fetch((q, k, v), b)
        if h % share == 0 or head == first:
            for s in range(0, S, KEYS):
                _copy_columns(k[b, g, s : s + KEYS], k_columns[s // KEYS])
            _copy_rows(v[b, g], v_rows)
        for t in range(0, T, QUERIES):
            m = min(QUERIES, T - t)
            _copy_rows(q[b, h, t : t + m], q_tile)
            n_visible = _n_visible(t + m - 1, T, S, options.causal)
            goes_on = False  # whether there was a tile of these queries
            for s in range(0, n_visible, KEYS):
                n = min(KEYS, n_visible - s)
                tile = Tile(b, h, t, s, m, n, H, T, S)
                if _is_hidden(options.keep_mask, tile):
                    continue
                columns = k_columns[s // KEYS]
                multiply_padded(q_tile, columns, scores, m, n, K, scale, False)
                weigh(scores, tile, goes_on, sums, peak[b, h, t:], total[b, h, t:], options)
                multiply_padded(scores, v_rows[s:], sums, m, Kv, n, one, goes_on)
                goes_on = True
            finite &= _divide(sums, out[b, t : t + m, h], total[b, h, t:], options.kept_scale)
    return finite


@_of_any_layout("q k v dout out dq dk dv")
def _attend_backward(q, k, v, dout, out, peak, total, dq, dk, dv, dbias, room, options, first, end):
    _, H, T, K = q.shape
    _, G, S, Kv = v.shape
    share, scale, one, finite = H // G, options.scale, like(options.scale, 1), True
    q_rows, dout_rows, dq_rows, row_sums = room[:4]
    k_columns, v_columns, k_tile, dk_tile, dv_tile = room[4:9]
    scores, dweights, rows, out_columns, products = room[9:]
    for group in range(first, end):
        b, g = group // G, group % G
        if QUERIES >= T and (g == 0 or group == first):
            scores[0, 0] = _fetch((q, k, v, dout, dq, dk, dv), b)
        dq_rows[:] = 0
        for i in range(share):
            h = g * share + i
            _copy_rows(q[b, h], q_rows[i])
            _copy_rows(dout[b, h], dout_rows[i])
            if S > KEYS:
                _sum_rows(dout_rows[i], out[b, h], out_columns, products, row_sums[i])
        for s in range(0, S, KEYS):
            n_all = min(KEYS, S - s)
            _copy_columns(k[b, g, s : s + n_all], k_columns)
            _copy_columns(v[b, g, s : s + n_all], v_columns)
            _copy_without_nan(k[b, g, s : s + n_all], k_tile)
            dk_tile[:] = 0
            dv_tile[:] = 0
            for i in range(share):
                h = g * share + i
                for t in range(0, T, QUERIES):
                    m = min(QUERIES, T - t)
                    n = _n_visible(t + m - 1, T, S, options.causal) - s
                    n = min(n_all, -(-n // ROWS) * ROWS)  # gradients are written in whole tiles
                    tile = Tile(b, h, t, s, m, n, H, T, S)
                    if n <= 0 or _is_hidden(options.keep_mask, tile):
                        continue
                    q_tile, dout_tile, dq_tile = q_rows[i, t:], dout_rows[i, t:], dq_rows[i, t:]
                    of_rows = peak[b, h, t:], total[b, h, t:], row_sums[i, t:]
                    multiply_padded(q_tile, k_columns, scores, m, n, K, scale, False)
                    multiply_padded(dout_tile, v_columns, dweights, m, n, Kv, one, False)
                    _differentiate(scores, dweights, rows, tile, of_rows, dbias, options)
                    weights, dscores = scores, dweights  # the kernel worked in place
                    multiply_columns(weights, dout_tile, dv_tile, n, Kv, m, one, True)
                    multiply_columns(dscores, q_tile, dk_tile, n, K, m, scale, True)
                    multiply_padded(dscores, k_tile, dq_tile, m, K, n, scale, True)
            # A pair of tiles that is not skipped adds to the first row of these two.
            finite &= edges_are_finite(dk_tile[:n_all, :K]) & edges_are_finite(dv_tile[:n_all, :Kv])
            _copy_out(dk_tile, dk[b, g, s : s + n_all])
            _copy_out(dv_tile, dv[b, g, s : s + n_all])
        for i in range(share):
            dq_head = dq[b, g * share + i]
            _copy_out(dq_rows[i], dq_head)
            for t in range(0, T, QUERIES):
                finite &= edges_are_finite(dq_head[t : t + QUERIES])
    return finite


@inlined
def _sum_rows(dout, out, columns, products, row_sums):
    """Σ dout · out of each row.

    The product that gives the gradients of the weights computes it, with all pairs of ROWS rows. So
    it is rounded as they are: a query that sees one key only, whose value is its output, subtracts
    the very number, and the gradient of the score is 0.
    """
    (T, Kv), one = out.shape, like(dout[0, 0], 1)
    for t in range(0, T, ROWS):
        n = min(ROWS, T - t)
        _copy_columns(out[t : t + n], columns)
        multiply_padded(dout[t:], columns, products, n, n, Kv, one, False)
        for i in range(n):
            row_sums[t + i] = products[i, i]


@inlined
def _copy_rows(x, tile):
    for i in range(len(x)):
        row = contiguous(x[i])
        copy_row(row, tile[i, : len(row)])


@inlined
def _copy_out(tile, x):
    """The rows of a tile to those of an array, which may be far apart."""
    for i in range(len(x)):
        row = contiguous(x[i])
        copy_row(tile[i, : len(row)], row)


@inlined
def _copy_without_nan(x, tile):
    """``_copy_rows``, with 0 for NaN: in place of NaN that no query sees, which the reference would
    have to handle. The gradients of the scores of a key that some query sees are NaN, too.
    """
    for i in range(len(x)):
        row, to = contiguous(x[i]), tile[i]
        for c in range(len(row)):
            to[c] = row[c] if row[c] == row[c] else like(row[c], 0)


@inlined
def _copy_columns(x, tile):
    for i in range(len(x)):
        row = contiguous(x[i])
        for c in range(len(row)):
            tile[c, i] = row[c]


@inlined
def _fetch(arrays, b):
    """Read sequence b of each of these arrays (B, H, T, K), all heads of one position before those
    of the next.

    In a model the heads of a position lie side by side. The processor prefetches well in this
    order, but not if the short rows of one head, which are far apart, are read before those of
    another.
    """
    total = arrays[0][b, 0, 0, 0]
    for x in arrays:
        for t in range(x.shape[2]):
            for h in range(x.shape[1]):
                for c in range(0, x.shape[3], 16):
                    total += x[b, h, t, c]
    return total


@inlined
def _n_visible(t, T, S, causal):
    """The number of keys, from the first on, that query t may see under a causal mask."""
    return min(S, max(0, t + 1 + S - T)) if causal else S


@inlined
def _n_visible_of(tile, i, causal):
    """The same, of the keys of a tile and its query i."""
    return min(tile.n_keys, max(0, _n_visible(tile.t + i, tile.T, tile.S, causal) - tile.s))


@inlined
def _row_of(x, b, h, t):
    """A row of a mask or bias (1 or B, 1 or H, 1 or T, S)."""
    return x[b if len(x) > 1 else 0, h if x.shape[1] > 1 else 0, t if x.shape[2] > 1 else 0]


@inlined
def _part_of(x, tile, i, n):
    """The first n entries of the row of a mask or bias for query i of a tile."""
    return _row_of(x, tile.b, tile.h, tile.t + i)[tile.s : tile.s + n]


@inlined
def _is_hidden(mask, tile):
    """Whether a mask hides a tile. A mask with one row for all queries is not read."""
    if mask.shape[2] == 1:
        return False
    # The last keys are seen by the last queries, if by any.
    for i in range(tile.n_queries - 1, -1, -1):
        row = _part_of(mask, tile, i, tile.n_keys)
        for s in range(len(row)):
            if row[s]:
                return False
    return True


# These change the first n numbers of row i, of the scores of a tile or of their gradients. They do
# not take the row itself: numba counts each view of an array, which takes 10 ns.


@if_given
def cap(x, i, n, softcap):
    """Write softcap · tanh(score / softcap) in place of scores."""
    for s in range(n):
        x[i, s] = softcap * tanh(x[i, s] / softcap)


@if_given
def slopes_of_capped(x, i, n, slopes, softcap):
    """The derivatives of capped scores by those before."""
    for s in range(n):
        share = x[i, s] / softcap
        slopes[s] = like(softcap, 1) - share * share


@if_given
def multiply_by_slopes(dx, i, n, slopes, softcap):
    """``cap``, backwards; the slope of a masked key may be NaN."""
    for s in range(n):
        dx[i, s] = dx[i, s] * slopes[s] if dx[i, s] != like(softcap, 0) else like(softcap, 0)


@if_given
def add_bias(x, i, n, tile, bias):
    """Add a bias to scores."""
    added = _part_of(bias, tile, i, n)
    for s in range(n):
        x[i, s] += added[s]


@if_given
def add_to_bias_gradient(dx, i, n, tile, dbias):
    """Add gradients of scores to the gradient of a bias."""
    total = _part_of(dbias, tile, i, n)
    for s in range(n):
        total[s] += dx[i, s]


@inlined
def _hide(x, i, n, tile, mask):
    """Write -inf where the mask is False."""
    allowed = _part_of(mask, tile, i, n)
    for s in range(n):
        x[i, s] = x[i, s] if allowed[s] else -like(x[i, s], np.inf)


@inlined
def weigh(x, tile, goes_on, sums, peak, total, options):
    """Turn scores into exp(score - peak) after dropout, 0 if masked, in place; peak and total as in
    the reference.

    ``goes_on`` says that another tile of keys came before, with ``sums``.
    """
    zero, draw = like(options.scale, 0), options.draw
    for i in range(tile.n_queries):
        n = _n_visible_of(tile, i, options.causal)
        for s in range(n, tile.n_keys):
            x[i, s] = 0
        if n == 0:
            continue
        cap(x, i, n, options.softcap)
        add_bias(x, i, n, tile, options.bias)
        if options.keep_mask.size > 0:
            _hide(x, i, n, tile, options.keep_mask)
        new_peak = largest(x, i, n)
        new_peak = peak[i] if new_peak <= peak[i] else new_peak  # a new peak of NaN is kept
        if new_peak == -np.inf:
            for s in range(n):
                x[i, s] = 0
            continue
        row_total, start = zero, _start_of(tile, i)
        if draw[0] > 0:  # two loops, as LLVM does not vectorise one with a branch in it
            for s in range(n):
                e = exp_negative(x[i, s] - new_peak)
                row_total += e
                x[i, s] = e if is_kept(start + s, draw) else zero
        else:
            for s in range(n):
                x[i, s] = exp_negative(x[i, s] - new_peak)
                row_total += x[i, s]
        if goes_on:
            shrink = exp_negative(peak[i] - new_peak)
            total[i] *= shrink
            for c in range(sums.shape[1]):
                sums[i, c] *= shrink
        total[i] += row_total
        peak[i] = new_peak


@inlined
def _start_of(tile, i):
    """The position of the first score of query i of a tile among all scores, by which dropout
    draws.
    """
    return ((tile.b * tile.H + tile.h) * tile.T + tile.t + i) * tile.S + tile.s


@inlined
def _divide(sums, out, total, kept_scale):
    """out = sums / total, for a tile, or 0 where total is 0. Returns whether the output is
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
        share = kept_scale / total[t]
        for c in range(len(row)):
            row[c] = sums[t, c] * share
        for c in range(len(row)):  # not in the loop above, which would round differently
            sum_of_zeros += row[c] * zero
    return sum_of_zeros == zero


@inlined
def _differentiate(x, dx, rows, tile, of_rows, dbias, options):
    """Turn scores x into weights after dropout, and gradients dx of the weights into those of x, in
    place.

    If the tile has all keys, the row sums are those of its weights. They are divided by the sum of
    the weights, which is 1 but for rounding, so that the gradients of the scores of a query add up
    to 0 also in the last digits.
    """
    peak, total, row_sums = of_rows
    kept, slopes = rows[0], rows[1]
    zero, draw = like(options.scale, 0), options.draw
    for i in range(tile.n_queries):
        n = _n_visible_of(tile, i, options.causal) if total[i] != zero else 0
        for s in range(n, tile.n_keys):
            x[i, s] = dx[i, s] = 0
        if n == 0:
            continue
        cap(x, i, n, options.softcap)
        slopes_of_capped(x, i, n, slopes, options.softcap)
        add_bias(x, i, n, tile, options.bias)
        if options.keep_mask.size > 0:
            _hide(x, i, n, tile, options.keep_mask)
        shift, share, start = peak[i], like(zero, 1) / total[i], _start_of(tile, i)
        sum_of_weights, row_sum = zero, zero
        if draw[0] > 0:  # two loops, as above
            for s in range(n):
                factor = options.kept_scale if is_kept(start + s, draw) else zero
                weight = exp_negative(x[i, s] - shift) * share
                # of a masked key it may be NaN
                dweight = dx[i, s] * factor if weight != zero else zero
                sum_of_weights += weight
                row_sum += weight * dweight
                x[i, s] = weight
                dx[i, s] = dweight
                kept[s] = weight * factor
        else:
            for s in range(n):
                weight = exp_negative(x[i, s] - shift) * share
                dweight = dx[i, s] if weight != zero else zero
                sum_of_weights += weight
                row_sum += weight * dweight
                x[i, s] = weight
                dx[i, s] = dweight
        row_sum = row_sum / sum_of_weights if tile.S <= KEYS else row_sums[i]
        for s in range(n):
            dx[i, s] = x[i, s] * (dx[i, s] - row_sum)
        if draw[0] > 0:
            for s in range(n):
                x[i, s] = kept[s]
        add_to_bias_gradient(dx, i, n, tile, dbias)
        multiply_by_slopes(dx, i, n, slopes, options.softcap)
