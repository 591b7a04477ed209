"""The scores of a tile, in place: from scores to weights, and from gradients of the weights to
gradients of the scores.

Each loop over numbers of a row is written where it is used, or changes the first n numbers of row
i: numba counts each view of an array, and each array that a function gets, which takes 10 ns.
"""

import numpy as np

from npformer.cpu.attention_tiles.tile import KEYS, n_visible_of, part_of, start_of
from npformer.cpu.draws import is_kept
from npformer.cpu.jit import exact, if_given, inlined
from npformer.cpu.rows import largest
from npformer.cpu.scalar import exp_negative, like, tanh


@inlined
def weigh(x, tile, goes_on, gathered, peak, total, options):
    """Turn scores into exp(score - peak) after dropout, 0 if masked; peak and total as in the
    reference.

    ``goes_on`` says that another tile of keys came before, with ``gathered``.
    """
    zero = like(options.scale, 0)
    draw = options.draw
    for i in range(tile.n_queries):
        n = n_visible_of(tile, i, options.causal)
        for s in range(n, tile.n_keys):
            x[i, s] = zero
        if n == 0:
            continue
        finish_scores(x, i, n, tile, None, options)
        old_peak = peak[i]
        new_peak = largest(x, i, n)
        new_peak = old_peak if new_peak <= old_peak else new_peak  # a new peak of NaN is kept
        if new_peak == -np.inf:
            for s in range(n):
                x[i, s] = zero
            continue
        tile_total = zero
        start = start_of(tile, i)
        if draw[0] > 0:  # two loops, as LLVM does not vectorise one with a branch in it
            for s in range(n):
                e = exp_negative(x[i, s] - new_peak)
                tile_total += e
                x[i, s] = e if is_kept(start + s, draw) else zero
        else:
            for s in range(n):
                x[i, s] = exp_negative(x[i, s] - new_peak)
                tile_total += x[i, s]
        if goes_on:  # the peak may have grown: what was added up before had another shift
            shrink = exp_negative(old_peak - new_peak)
            total[i] *= shrink
            for c in range(gathered.shape[1]):
                gathered[i, c] *= shrink
        total[i] += tile_total
        peak[i] = new_peak


@inlined
def differentiate(x, dx, kept_and_slopes, tile, statistics, dbias, options):
    """Turn scores x into weights after dropout, and gradients dx of those into gradients of the
    scores.

    The statistics are the peak, the total and the row sum of each query. If the tile has all keys,
    the row sums are those of its weights. They are divided by the sum of the weights, which is 1
    except for rounding, so that the gradients of the scores of a query add up to 0 also in the last
    digits.
    """
    kept = kept_and_slopes[0]
    slopes = kept_and_slopes[1]
    peak, total, row_sums = statistics
    zero = like(options.scale, 0)
    draw = options.draw
    for i in range(tile.n_queries):
        n = n_visible_of(tile, i, options.causal) if total[i] != zero else 0
        for s in range(n, tile.n_keys):
            x[i, s] = dx[i, s] = zero
        if n == 0:
            continue
        finish_scores(x, i, n, tile, slopes, options)
        shift = peak[i]
        inverse_total = like(zero, 1) / total[i]
        start = start_of(tile, i)
        if draw[0] > 0:  # otherwise ``kept`` has ones
            for s in range(n):
                kept[s] = options.kept_scale if is_kept(start + s, draw) else zero
                dx[i, s] *= kept[s]
        sum_of_weights = zero
        row_sum = zero
        for s in range(n):
            weight = times(exp_negative(x[i, s] - shift), inverse_total)
            dweight = dx[i, s] if weight != zero else zero  # of a masked key it may be NaN
            sum_of_weights += weight
            row_sum += weight * dweight
            x[i, s] = weight
            dx[i, s] = dweight
        # softmax_backward: dscores = weights (dweights - Σ weights dweights)
        row_sum = row_sum / sum_of_weights if tile.S <= KEYS else row_sums[i]
        for s in range(n):
            weight = x[i, s]
            dx[i, s] = weight * (dx[i, s] - row_sum)
            x[i, s] = weight * kept[s]
        add_to_bias_gradient(dx, i, n, tile, dbias)
        multiply_by_slopes(dx, i, n, slopes, options.softcap)


@exact
def times(x, inverse):
    """x · inverse, where inverse is 1 / y: LLVM would divide each x by y."""
    return x * inverse


@inlined
def finish_scores(x, i, n, tile, slopes, options):
    """Cap scores, which are scaled already, add the bias, and write -inf where the mask is False.

    The derivatives of the capped scores are written to ``slopes``, if it is given.
    """
    cap(x, i, n, options.softcap)
    slopes_of_capped(x, i, n, slopes, options.softcap)
    add_bias(x, i, n, tile, options.bias)
    if options.keep_mask.size > 0:
        allowed = part_of(options.keep_mask, tile, i, n)
        for s in range(n):
            x[i, s] = x[i, s] if allowed[s] else -like(x[i, s], np.inf)


@if_given
def cap(x, i, n, softcap):
    """Write softcap · tanh(score / softcap) in place of scores."""
    for s in range(n):
        x[i, s] = softcap * tanh(x[i, s] / softcap)


@if_given
def slopes_of_capped(x, i, n, slopes, softcap):
    """The derivatives of capped scores by those before."""
    for s in range(n):
        ratio = x[i, s] / softcap
        slopes[s] = like(softcap, 1) - ratio * ratio


@if_given
def multiply_by_slopes(dx, i, n, slopes, softcap):
    """``cap``, backwards; the slope of a masked key may be NaN."""
    for s in range(n):
        dx[i, s] = dx[i, s] * slopes[s] if dx[i, s] != like(softcap, 0) else like(softcap, 0)


@if_given
def add_bias(x, i, n, tile, bias):
    """Add a bias to scores."""
    added = part_of(bias, tile, i, n)
    for s in range(n):
        x[i, s] += added[s]


@if_given
def add_to_bias_gradient(dx, i, n, tile, dbias):
    """Add gradients of scores to the gradient of a bias."""
    total = part_of(dbias, tile, i, n)
    for s in range(n):
        total[s] += dx[i, s]
