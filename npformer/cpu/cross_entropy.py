"""The loss, and in the place of the logits their gradient: each row is read from memory once.

The same for pairs of rows that shall agree.
"""

import math

import numpy as np

from npformer import reference
from npformer.cpu.arrays import IDS, as_rows, suit
from npformer.cpu.jit import kernel
from npformer.cpu.linear import fits
from npformer.cpu.memory import empty
from npformer.cpu.scalar import exp, largest, like
from npformer.reference.arrays import quiet


def cross_entropy(logits, targets, *, ignore_id=None, label_smoothing=0.0, n_tokens=None):
    """As ``reference.cross_entropy``."""
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing, "n_tokens": n_tokens}
    share = _share(targets, logits.shape, **options) if suit(logits) else None
    if not share:
        return reference.cross_entropy(logits, targets, **options)
    dlogits = empty(logits.shape, logits.dtype)
    np.copyto(dlogits, logits)
    bias = np.zeros(logits.shape[-1], logits.dtype)
    return _in_place(_differentiate, as_rows(dlogits), bias, targets, ignore_id, share, label_smoothing), dlogits


@quiet
def linear_cross_entropy(x, weight, bias, targets, *, ignore_id=None, label_smoothing=0.0, n_tokens=None):
    """As ``reference.linear_cross_entropy``."""
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing, "n_tokens": n_tokens}
    shape = (*x.shape[:-1], weight.shape[1]) if fits(x, weight, bias) else None
    share = _share(targets, shape, **options) if shape else None
    if not share:
        return reference.linear_cross_entropy(x, weight, bias, targets, **options)
    logits = empty(shape, x.dtype)
    np.matmul(as_rows(x), weight, out=as_rows(logits))
    return _in_place(_differentiate, as_rows(logits), bias, targets, ignore_id, share, label_smoothing), logits


def paired_cross_entropy(logits, targets, consistency, *, ignore_id=None, label_smoothing=0.0, n_tokens=None):
    """As ``reference.paired_cross_entropy``."""
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing, "n_tokens": n_tokens}
    share = _share_of_pairs(targets, logits.shape, consistency, **options) if suit(logits) else None
    if not share:
        return reference.paired_cross_entropy(logits, targets, consistency, **options)
    dlogits = empty(logits.shape, logits.dtype)
    np.copyto(dlogits, logits)
    bias = np.zeros(logits.shape[-1], logits.dtype)
    numbers = share, label_smoothing, consistency
    return _in_place(_differentiate_pairs, _as_pairs(dlogits), bias, targets, ignore_id, *numbers), dlogits


@quiet
def linear_paired_cross_entropy(
    x, weight, bias, targets, consistency, *, ignore_id=None, label_smoothing=0.0, n_tokens=None
):
    """As ``reference.linear_paired_cross_entropy``."""
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing, "n_tokens": n_tokens}
    shape = (*x.shape[:-1], weight.shape[1]) if fits(x, weight, bias) else None
    share = _share_of_pairs(targets, shape, consistency, **options) if shape else None
    if not share:
        return reference.linear_paired_cross_entropy(x, weight, bias, targets, consistency, **options)
    logits = empty(shape, x.dtype)
    np.matmul(as_rows(x), weight, out=as_rows(logits))
    numbers = share, label_smoothing, consistency
    return _in_place(_differentiate_pairs, _as_pairs(logits), bias, targets, ignore_id, *numbers), logits


def _as_pairs(logits):
    """(2, ..., V) as (2, n, V)."""
    return logits.reshape(2, -1, logits.shape[-1])


def _share_of_pairs(targets, shape, consistency, **options):
    """``_share`` of each prediction where there are two of each target."""
    if shape[:1] != (2,) or type(consistency) not in (int, float) or not 0 <= consistency < math.inf:
        return None
    share = _share(targets, shape[1:], **options)
    return share and share / 2


def _share(targets, shape, ignore_id, label_smoothing, n_tokens):
    """Of each counted token in the mean; None if the reference has to say what is wrong or unusual."""
    if not (type(targets) is np.ndarray and targets.dtype in IDS and targets.size and shape and shape[-1]):
        return None
    if targets.shape != shape[:-1] or not isinstance(label_smoothing, float) or not 0 <= label_smoothing <= 1:
        return None
    if not (ignore_id is None or (type(ignore_id) is int and abs(ignore_id) < 2**62)):
        return None
    counted = targets if ignore_id is None else targets[targets != ignore_id]
    if not counted.size or counted.min() < 0 or counted.max() >= shape[-1]:
        return None
    n = counted.size if n_tokens is None else n_tokens
    return 1 / n if type(n) is int and n > 0 else None


def _in_place(differentiate, logits, bias, targets, ignore_id, share, *numbers):
    """The loss by one of the kernels below, which turns logits into their gradient."""
    ignore_id = -1 if ignore_id is None else ignore_id  # no counted target is negative
    number = logits.dtype.type
    targets, bias = np.ascontiguousarray(targets).reshape(-1), np.ascontiguousarray(bias)
    numbers = map(number, (share, *numbers))
    return number(differentiate(logits, bias, targets, np.int64(ignore_id), *numbers) * share)


@kernel
def _differentiate(logits, bias, targets, ignore_id, share, smoothing):
    n, V = logits.shape
    loss = 0.0
    for i in range(n):
        row, target = logits[i], targets[i]
        if target == ignore_id:
            row[:] = like(share, 0)
            continue
        for j in range(V):
            row[j] += bias[j]
        peak = largest(logits, i, V)
        peak = like(share, 0) if peak == -np.inf else peak
        total, total_logit, logit = like(share, 0), like(share, 0), row[target] - peak
        for j in range(V):
            shifted = row[j] - peak
            e = exp(shifted)
            row[j] = e
            total += e
            total_logit += shifted
        total = like(share, 1) if total == 0 else total
        log_total = math.log(total)
        loss += (like(share, 1) - smoothing) * (log_total - logit)
        if smoothing > 0:
            loss += smoothing * (log_total - total_logit / like(share, V))
        scale, everywhere = share / total, share * smoothing / like(share, V)
        for j in range(V):
            row[j] = row[j] * scale - everywhere
        row[target] -= share * (like(share, 1) - smoothing)
    return loss


@kernel
def _differentiate_pairs(logits, bias, targets, ignore_id, share, smoothing, consistency):
    _, n, V = logits.shape
    consistency /= like(share, 2)  # of each of the two divergences
    p, one = np.empty((2, V), logits.dtype), like(share, 1)
    total, log_total, divergence = np.empty((3, 2), logits.dtype)
    loss = 0.0
    for i in range(n):
        target = targets[i]
        if target == ignore_id:
            logits[:, i] = like(share, 0)
            continue
        for side in range(2):  # shifted logits, exp of them
            row, sum_of_shifted = logits[side, i], like(share, 0)
            for j in range(V):
                row[j] += bias[j]
            peak = largest(logits[side], i, V)
            total[side] = like(share, 0)
            for j in range(V):
                row[j] -= peak
                p[side, j] = exp(row[j])
                total[side] += p[side, j]
                sum_of_shifted += row[j]
            log_total[side] = math.log(total[side])
            loss += (one - smoothing) * (log_total[side] - row[target])
            loss += smoothing * (log_total[side] - sum_of_shifted / like(share, V))

        x, y, less = logits[0, i], logits[1, i], log_total[0] - log_total[1]
        divergence[:] = like(share, 0)
        for j in range(V):
            apart = x[j] - y[j] - less
            divergence[0] += p[0, j] * apart
            divergence[1] -= p[1, j] * apart
        divergence /= total
        loss += consistency * (divergence[0] + divergence[1])

        everywhere, weight = share * smoothing / like(share, V), share * consistency
        for j in range(V):
            apart, p_x, p_y = x[j] - y[j] - less, p[0, j] / total[0], p[1, j] / total[1]
            between = weight * (p_x - p_y)
            x[j] = p_x * (share + weight * (apart - divergence[0])) + between - everywhere
            y[j] = p_y * (share - weight * (apart + divergence[1])) - between - everywhere
        x[target] -= share * (one - smoothing)
        y[target] -= share * (one - smoothing)
    return loss
