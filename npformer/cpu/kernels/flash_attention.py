"""Attention in tiles. A tile is a few queries and keys of one head, so few that their scores stay in the cache.

The rows of a head are short and far apart, so its matrices are copied before they are multiplied, once for all tiles. A
thread computes whole heads without returning to Python. The kernels work in place: scores become weights, and in the
backward pass gradients of the weights become gradients of the scores. Tiles of keys that are hidden from all queries of
a tile, by the causal mask or by a mask with a row for each query, are skipped. H heads of queries may share G heads of
keys and values, H / G each; in the backward pass a thread computes all that share one, as they add to the same
gradients.
"""

import inspect
from typing import NamedTuple

import numba
import numpy as np

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import does_nothing, if_given, inlined, kernel
from npformer.cpu.kernels.dropout import drawing
from npformer.cpu.padded import ROWS, multiply_padded, with_room
from npformer.cpu.rows import contiguous, copy_row
from npformer.cpu.scalar import exp_negative, is_kept, largest, like, tanh
from npformer.reference.math.attention import scale_of, summed_to
from npformer.reference.math.flash_attention import results_of
from npformer.runtime.memory import empty
from npformer.runtime.threads import MOST_PARTS, WORTH_A_PART, even_slices, in_parallel

# The most per tile. A column of it (a line per query) is read from the first-level cache, the whole of it (96 KB of
# float32 scores) and what it is multiplied by from the second.
QUERIES, KEYS = 96, 256
assert QUERIES % ROWS == 0  # so that a tile of queries begins with a whole tile of rows
OF_A_HEAD = 2**17  # multiplications that take as long as the copies of the matrices of a short head
NO_MASK = np.ones((1, 1, 1, 0), bool)


KNOWN = "causal scale dropout_rate softcap"  # the fields of AttentionOptions that these kernels know


class KernelOptions(NamedTuple):
    """The arguments of the kernels besides arrays; ``draw`` and ``kept_scale`` are for dropout.

    What is None is not compiled into a kernel. There is always a mask, and always a draw, so that one kernel serves all
    attentions of most trainings: it is compiled for seconds.
    """

    keep_mask: np.ndarray  # (1 or B, 1 or H, 1 or T, S), or NO_MASK
    bias: np.ndarray | None  # the same
    causal: bool
    scale: float
    draw: tuple
    kept_scale: float
    softcap: float | None


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
def flash_attention_backward(dout, q, k, v, out, logsumexp, keep_mask, bias, options, dropout_key, peak):
    for_kernel = kernel_options(q, k, keep_mask, bias, options, dropout_key)
    q4, k4, v4 = as_heads(q), as_heads(k), as_heads(v)
    if peak is None:  # a forward pass finds it, of one column of the values, as the output is not needed
        draw, kept_scale = drawing(0.0, None, q.dtype)
        without_dropout = for_kernel._replace(draw=draw, kept_scale=kept_scale)
        saved = attend(q4, k4, v4[..., :1], _empty_heads(q4, v4[..., :1]), without_dropout)
        if saved is NotImplemented:
            return NotImplemented
    else:
        saved = (x.reshape(q4.shape[:-1]) for x in (peak, np.exp(logsumexp)))
    gradients = tuple(empty(x.shape, x.dtype) for x in (q4, k4, v4))
    dbias = attend_backward(as_heads(dout), as_heads(out), q4, k4, v4, *saved, gradients, for_kernel)
    if dbias is NotImplemented:
        return NotImplemented
    gradients = tuple(gradient.reshape(x.shape) for gradient, x in zip(gradients, (q, k, v), strict=True))
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
    """The options, ``AttentionOptions``, in the form that the kernels take. Without a key nothing is dropped."""
    number, S = q.dtype.type, k.shape[-2]
    hides = keep_mask is not None and np.count_nonzero(keep_mask) < keep_mask.size
    mask = with_four_axes(keep_mask, q.shape, S) if hides else NO_MASK
    bias = None if bias is None else with_four_axes(bias, q.shape, S)
    scale = number(scale_of(q.shape[-1], options.scale))
    dropout_rate = 0.0 if dropout_key is None else options.dropout_rate
    softcap = None if options.softcap is None else number(options.softcap)
    return KernelOptions(mask, bias, options.causal, scale, *drawing(dropout_rate, dropout_key, q.dtype), softcap)


def with_four_axes(x, q_shape, S):
    """A mask or bias that broadcasts to the scores as (1 or B, 1 or H, 1 or T, S)."""
    x = x.reshape((1,) * (4 - x.ndim) + x.shape)
    if x.shape[-1] == S and len(q_shape) <= 4:
        return x
    leading = q_shape[:-3] if len(q_shape) > 4 else x.shape[:1]
    whole = np.broadcast_to(x, (*leading, *x.shape[-3:-1], S))
    return whole.copy().reshape(-1, *whole.shape[-3:])


def attend(q, k, v, out, options):
    """Write ``out`` (B, H, T, Kv), whose heads lie side by side, and return (peak, total), or ``NotImplemented``.

    They are, for each query, its largest score, -inf if it sees no key, and Σ exp(score - peak).
    """
    B, H, T, _ = q.shape
    out = out.swapaxes(1, 2)
    peak, total = np.empty((B, H, T), q.dtype), np.empty((B, H, T), q.dtype)

    def work(heads):
        return _attend(q, k, v, out, peak, total, _scratch(q, v), options, *heads)

    if not _of_all_heads(work, B * H, q, v):
        return NotImplemented  # there may be a NaN or inf that the mask should hide: the reference handles it
    return peak, total


def attend_backward(dout, out, q, k, v, peak, total, gradients, options):
    """Write the gradients (dq, dk, dv), and return that of the bias (B, H, 1 or T, S), or None, if there is none.

    Or return ``NotImplemented``.
    """
    dbias = None if options.bias is None else np.zeros((*q.shape[:2], *options.bias.shape[2:]), q.dtype)

    def work(groups):
        arrays = (q, k, v, dout, out, peak, total, *gradients, dbias, _scratch(q, v, backward=True))
        return _attend_backward(*arrays, options, *groups)

    B, G = v.shape[:2]
    return dbias if _of_all_heads(work, B * G, q, v) else NotImplemented  # as above


def of_bias(dbias, bias, q):
    """The gradient of a bias, from that for each head."""
    return summed_to(dbias.reshape(*q.shape[:-2], *dbias.shape[2:]), bias.shape)


def _scratch(q, v, backward=False):
    """Matrices ``with_room`` for the tiles of a thread, and for all queries or keys of a head."""
    (T, K), (S, Kv), share = q.shape[2:], v.shape[2:], q.shape[1] // v.shape[1]
    n_queries, n_keys = min(T, QUERIES), min(S, KEYS)
    if not backward:
        shapes = [(-(-S // KEYS), K, n_keys), (S, Kv), (n_queries, K), (n_queries, Kv), (n_queries, n_keys)]
    else:
        shapes = [(share, T, K), (share, T, Kv), (K, n_keys), (Kv, n_keys), (n_keys, K), (n_keys, K), (n_keys, Kv)]
        shapes += [(n_queries, n_keys), (n_queries, n_keys), (share, T, K)]
        shapes += [(2, n_keys), (Kv, ROWS), (ROWS, ROWS), (share, T)]
    return with_room(shapes, q.dtype)


def _of_all_heads(work, n_heads, q, v):
    """Whether ``work`` returns True for all heads, 0 … n_heads - 1, which are divided evenly between threads."""
    B, H, T, K = q.shape
    n_products = B * H * (T * v.shape[2] * K + OF_A_HEAD)
    n = min(n_heads, n_products // WORTH_A_PART, MOST_PARTS)
    if n < 2:
        return work((0, n_heads))
    return all(in_parallel(work, [(part.start, part.stop) for part in even_slices(n_heads, n)]))


@inlined
def edges_are_finite(product):
    """Whether no factor of this matrix product holds NaN or inf.

    In the left factor it makes a whole row of the product NaN or inf, in the right factor a whole column. So it is
    enough to check the first column and the first row.
    """
    n_wrong = 0
    for i in range(product.shape[0]):
        n_wrong += not np.isfinite(product[i, 0])
    for j in range(product.shape[1]):
        n_wrong += not np.isfinite(product[0, j])
    return n_wrong == 0


def _of_any_layout(names):
    """Decorate a kernel that is compiled once for all layouts of the arrays with these names, not once for each."""

    def decorate(function):
        if numba.config.DISABLE_JIT:
            return function
        compiled, entries = kernel(function), {}
        at_options = list(inspect.signature(function).parameters).index("options") - 1

        def compile_for(arguments):
            kinds = dict(zip(inspect.signature(function).parameters, map(numba.typeof, arguments), strict=True))
            kinds |= {name: kinds[name].copy(layout="A") for name in names.split()}
            return compiled.compile(tuple(kinds.values()))

        def call(q, *others):
            key = q.dtype, *map(type, others[at_options])
            entry = entries.get(key) or compile_for((q, *others))
            if entry is not does_nothing:
                entries[key] = entry
            return entry(q, *others)

        return call

    return decorate


@_of_any_layout("q k v")
def _attend(q, k, v, out, peak, total, scratch, options, first, end):
    (H, T), (G, S) = q.shape[1:3], k.shape[1:3]
    K, Kv, share, one = q.shape[3], v.shape[3], H // G, like(options.scale, 1)
    k_columns, v_rows, q_tile, sums, scores = scratch
    finite = True
    for head in range(first, end):
        b, h, g = head // H, head % H, head % H // share
        peak[b, h], total[b, h] = like(options.scale, -np.inf), like(options.scale, 0)
        if QUERIES >= T and (h == 0 or head == first):
            scores[0, 0] = _fetch((q, k, v), b)
        if h % share == 0 or head == first:
            for s in range(0, S, KEYS):
                _copy_columns(k[b, g, s : s + KEYS], k_columns[s // KEYS])
            _copy_rows(v[b, g], v_rows)
        for t in range(0, T, QUERIES):
            n_queries = min(QUERIES, T - t)
            _copy_rows(q[b, h, t : t + n_queries], q_tile)
            seen = n_visible(t + n_queries - 1, T, S, options.causal)
            n_tiles = 0
            for s in range(0, seen, KEYS):
                n_keys = min(KEYS, seen - s)
                if _is_hidden(options.keep_mask, b, h, t, t + n_queries, s, s + n_keys):
                    continue
                multiply_padded(q_tile, k_columns[s // KEYS], scores, n_queries, n_keys, K, options.scale)
                weigh(scores, n_queries, n_keys, (b, h, t, s), (H, T, S), n_tiles > 0, sums, peak, total, options)
                multiply_padded(scores, v_rows[s:], sums, n_queries, Kv, n_keys, one, n_tiles > 0)
                n_tiles += 1
            finite &= _divide(sums, out[b, t : t + n_queries, h], total[b, h, t:], options.kept_scale)
    return finite


@_of_any_layout("q k v dout out dq dk dv")
def _attend_backward(q, k, v, dout, out, peak, total, dq, dk, dv, dbias, scratch, options, first, end):
    (H, T), (G, S) = q.shape[1:3], k.shape[1:3]
    K, Kv, share, one = q.shape[3], v.shape[3], H // G, like(options.scale, 1)
    q_rows, dout_rows, k_columns, v_columns, k_tile, dk_tile, dv_tile, scores, dweights, dq_rows = scratch[:10]
    # row_sums: Σ weight · dweight of each query, which the backward pass of the softmax subtracts. If there are several
    # tiles of keys, it is Σ dout · out, which is known before the first.
    rows, out_columns, products, row_sums = scratch[10:]
    finite, is_one_tile = True, S <= KEYS
    for group in range(first, end):
        b, g = group // G, group % G
        if QUERIES >= T and (g == 0 or group == first):
            scores[0, 0] = _fetch((q, k, v, dout, dq, dk, dv), b)
        dq_rows[:] = like(one, 0)
        for i in range(share):
            h = g * share + i
            _copy_rows(q[b, h], q_rows[i])
            _copy_rows(dout[b, h], dout_rows[i])
            if not is_one_tile:
                _sum_rows(dout_rows[i], out[b, h], out_columns, products, row_sums[i])
        for s in range(0, S, KEYS):
            n_all = min(KEYS, S - s)
            _copy_columns(k[b, g, s : s + n_all], k_columns)
            _copy_columns(v[b, g, s : s + n_all], v_columns)
            _copy_without_nan(k[b, g, s : s + n_all], k_tile)
            dk_tile[:], dv_tile[:] = like(one, 0), like(one, 0)
            for i in range(share):
                h = g * share + i
                for t in range(0, T, QUERIES):
                    n_queries = min(QUERIES, T - t)
                    n_keys = n_visible(t + n_queries - 1, T, S, options.causal) - s
                    n_keys = min(n_all, -(-n_keys // ROWS) * ROWS)  # dk_tile and dv_tile are written in whole tiles
                    if n_keys <= 0 or _is_hidden(options.keep_mask, b, h, t, t + n_queries, s, s + n_keys):
                        continue
                    q_tile, dout_tile = q_rows[i, t:], dout_rows[i, t:]
                    multiply_padded(q_tile, k_columns, scores, n_queries, n_keys, K, options.scale)
                    multiply_padded(dout_tile, v_columns, dweights, n_queries, n_keys, Kv, one)
                    of_rows = peak[b, h, t:], total[b, h, t:], row_sums[i, t:], is_one_tile
                    tiles, place = (scores, dweights, rows[0], rows[1]), (b, h, t, s)
                    _differentiate(*tiles, n_queries, n_keys, place, (H, T, S), *of_rows, dbias, options)
                    weights, dscores = scores, dweights  # the kernel worked in place
                    multiply_padded(weights, dout_tile, dv_tile, n_keys, Kv, n_queries, one, True, True)
                    multiply_padded(dscores, q_tile, dk_tile, n_keys, K, n_queries, options.scale, True, True)
                    dq_tile = dq_rows[i, t:]
                    multiply_padded(dscores, k_tile, dq_tile, n_queries, K, n_keys, options.scale, True)
            # A pair of tiles that is not skipped adds to the first row of these two.
            finite &= edges_are_finite(dk_tile[:n_all, :K]) & edges_are_finite(dv_tile[:n_all, :Kv])
            for j in range(n_all):
                copy_row(dk_tile[j, :K], contiguous(dk[b, g, s + j]))
                copy_row(dv_tile[j, :Kv], contiguous(dv[b, g, s + j]))
        for i in range(share):
            for t in range(T):
                copy_row(dq_rows[i, t, :K], contiguous(dq[b, g * share + i, t]))
            for t in range(0, T, QUERIES):
                finite &= edges_are_finite(dq[b, g * share + i, t : t + QUERIES])
    return finite


@inlined
def _sum_rows(dout, out, columns, products, row_sums):
    """Σ dout · out of each row.

    The product that gives the gradients of the weights computes it, with all pairs of ROWS rows. So it is rounded as
    they are: a query that sees one key only, whose value is its output, subtracts the very number, and the gradient of
    the score is 0.
    """
    (T, Kv), one = out.shape, like(dout[0, 0], 1)
    for t in range(0, T, ROWS):
        n = min(ROWS, T - t)
        _copy_columns(out[t : t + n], columns)
        multiply_padded(dout[t:], columns, products, n, n, Kv, one)
        for i in range(n):
            row_sums[t + i] = products[i, i]


@inlined
def _copy_rows(x, tile):
    for i in range(len(x)):
        row = contiguous(x[i])
        copy_row(row, tile[i, : len(row)])


@inlined
def _copy_without_nan(x, tile):
    """``_copy_rows``, with 0 for NaN: in place of NaN that no query sees, which the reference would have to handle. The
    gradients of the scores of a key that some query sees are NaN, too.
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
    """Read sequence b of each of these arrays (B, H, T, K), all heads of one position before those of the next.

    In a model the heads of a position lie side by side. The processor prefetches well in this order, but not if the
    short rows of one head, which are far apart, are read before those of another.
    """
    total = arrays[0][b, 0, 0, 0]
    for x in arrays:
        for t in range(x.shape[2]):
            for h in range(x.shape[1]):
                for c in range(0, x.shape[3], 16):
                    total += x[b, h, t, c]
    return total


@inlined
def n_visible(t, T, S, causal):
    """The number of keys, from the first on, that query t may see under a causal mask."""
    return min(S, max(0, t + 1 + S - T)) if causal else S


@inlined
def _is_hidden(mask, b, h, t, t_end, s, s_end):
    """Whether a mask (1 or B, 1 or H, T, S) hides a tile. A mask with one row for all queries is not read."""
    if mask.shape[2] == 1:
        return False
    b, h = b if len(mask) > 1 else 0, h if mask.shape[1] > 1 else 0
    for query in range(t_end - 1, t - 1, -1):  # the last keys of a tile are seen by its last queries, if by any
        for key in range(s, s_end):
            if mask[b, h, query, key]:
                return False
    return True


@inlined
def hide(x, row, n, first_key, b, h, t, mask):
    """Write -inf where the mask (1 or B, 1 or H, 1 or T, S) is False, in the first n entries of a row."""
    b, h, t = b if len(mask) > 1 else 0, h if mask.shape[1] > 1 else 0, t if mask.shape[2] > 1 else 0
    allowed = mask[b, h, t, first_key : first_key + n]
    for s in range(n):
        x[row, s] = x[row, s] if allowed[s] else like(x[row, s], -np.inf)


@if_given
def cap(x, row, n, softcap):
    """Write softcap · tanh(score / softcap) in place of the first n scores of a row."""
    for s in range(n):
        x[row, s] = softcap * tanh(x[row, s] / softcap)


@if_given
def slopes_of_capped(x, row, n, slopes, softcap):
    """The derivatives of the first n scores of a row, which are capped, by those before."""
    for s in range(n):
        share = x[row, s] / softcap
        slopes[s] = like(softcap, 1) - share * share


@if_given
def multiply_by_slopes(dx, row, n, slopes, softcap):
    """``cap``, backwards; the slope of a masked key may be NaN."""
    for s in range(n):
        dx[row, s] = dx[row, s] * slopes[s] if dx[row, s] != like(softcap, 0) else like(softcap, 0)


@if_given
def add_bias(x, row, n, first_key, place, bias):
    """Add a bias (1 or B, 1 or H, 1 or T, S) to the first n entries of a row."""
    b, h, t = place
    b, h, t = b if len(bias) > 1 else 0, h if bias.shape[1] > 1 else 0, t if bias.shape[2] > 1 else 0
    added = bias[b, h, t, first_key : first_key + n]
    for s in range(n):
        x[row, s] += added[s]


@if_given
def add_to_bias_gradient(dx, row, n, first_key, place, dbias):
    """Add the first n entries of a row to the gradient of a bias (B, H, 1 or T, S)."""
    b, h, t = place
    total = dbias[b, h, t if dbias.shape[2] > 1 else 0]
    for s in range(n):
        total[first_key + s] += dx[row, s]


@inlined
def weigh(x, n_queries, n_keys, place, lengths, goes_on, sums, peak, total, options):
    """Turn scores into exp(score - peak) after dropout, 0 if masked, in place; peak and total as in the reference.

    ``goes_on`` says that another tile of keys came before, with ``sums``.
    """
    (b, h, t0, s0), (H, T, S) = place, lengths
    masked, scale, draw = options.keep_mask.size > 0, options.scale, options.draw
    for i in range(n_queries):
        t = t0 + i
        n = min(n_keys, max(0, n_visible(t, T, S, options.causal) - s0))
        for s in range(n, n_keys):
            x[i, s] = like(scale, 0)
        if n == 0:
            continue
        cap(x, i, n, options.softcap)
        add_bias(x, i, n, s0, (b, h, t), options.bias)
        if masked:
            hide(x, i, n, s0, b, h, t, options.keep_mask)
        new_peak = largest(x, i, n)
        new_peak = peak[b, h, t] if new_peak <= peak[b, h, t] else new_peak  # a new peak of NaN is kept
        if new_peak == -np.inf:
            for s in range(n):
                x[i, s] = like(scale, 0)
            continue
        row_total, start = like(scale, 0), ((b * H + h) * T + t) * S + s0
        if draw[0] > 0:  # two loops, as LLVM does not vectorise one with a branch in it
            for s in range(n):
                e = exp_negative(x[i, s] - new_peak)
                row_total += e
                x[i, s] = e if is_kept(start + s, draw) else like(scale, 0)
        else:
            for s in range(n):
                x[i, s] = exp_negative(x[i, s] - new_peak)
                row_total += x[i, s]
        if goes_on:
            shrink = exp_negative(peak[b, h, t] - new_peak)
            total[b, h, t] *= shrink
            for c in range(sums.shape[1]):
                sums[i, c] *= shrink
        total[b, h, t] += row_total
        peak[b, h, t] = new_peak


@inlined
def _divide(sums, out, total, kept_scale):
    """out = sums / total, for a tile. Returns whether the output is finite."""
    n_wrong = 0
    for t in range(len(out)):
        if total[t] == 0:
            for c in range(out.shape[1]):
                out[t, c] = like(kept_scale, 0)
            continue
        share = kept_scale / total[t]
        for c in range(out.shape[1]):
            out[t, c] = sums[t, c] * share
            n_wrong += not np.isfinite(out[t, c])
    return n_wrong == 0


@inlined
def _differentiate(
    x, dx, kept, slopes, n_queries, n_keys, place, lengths, peak, total, row_sums, is_one_tile, dbias, options
):
    """Turn scores x into weights after dropout, and gradients dx of the weights into those of x, in place.

    ``kept`` and ``slopes`` are room for a row.

    If the tile has all keys, the row sums are those of its weights. They are divided by the sum of the weights, which
    is 1 but for rounding, so that the gradients of the scores of a query add up to 0 also in the last digits.
    """
    (b, h, t0, s0), (H, T, S) = place, lengths
    masked, scale, draw = options.keep_mask.size > 0, options.scale, options.draw
    zero = like(scale, 0)
    for i in range(n_queries):
        t = t0 + i
        shift, start = peak[i], ((b * H + h) * T + t) * S + s0
        n = min(n_keys, max(0, n_visible(t, T, S, options.causal) - s0)) if total[i] != zero else 0
        for s in range(n, n_keys):
            x[i, s] = dx[i, s] = zero
        if n == 0:
            continue
        cap(x, i, n, options.softcap)
        slopes_of_capped(x, i, n, slopes, options.softcap)
        add_bias(x, i, n, s0, (b, h, t), options.bias)
        if masked:
            hide(x, i, n, s0, b, h, t, options.keep_mask)
        share, sum_of_weights, row_sum = like(scale, 1) / total[i], zero, zero
        if draw[0] > 0:  # two loops, as above
            for s in range(n):
                factor = options.kept_scale if is_kept(start + s, draw) else zero
                weight = exp_negative(x[i, s] - shift) * share
                dweight = dx[i, s] * factor if weight != zero else zero  # of a masked key it may be NaN
                sum_of_weights += weight
                row_sum += weight * dweight
                x[i, s], dx[i, s], kept[s] = weight, dweight, weight * factor
        else:
            for s in range(n):
                weight = exp_negative(x[i, s] - shift) * share
                dweight = dx[i, s] if weight != zero else zero
                sum_of_weights += weight
                row_sum += weight * dweight
                x[i, s], dx[i, s] = weight, dweight
        row_sum = row_sum / sum_of_weights if is_one_tile else row_sums[i]
        for s in range(n):
            dx[i, s] = x[i, s] * (dx[i, s] - row_sum)
        if draw[0] > 0:
            copy_row(kept[:n], x[i, :n])
        add_to_bias_gradient(dx, i, n, s0, (b, h, t), dbias)
        multiply_by_slopes(dx, i, n, slopes, options.softcap)
