"""The loss, and in the place of the logits their gradient: each row is read from memory once."""

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
    return _in_place(dlogits, bias, targets, ignore_id, label_smoothing, share), dlogits


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
    return _in_place(logits, bias, targets, ignore_id, label_smoothing, share), logits


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


def _in_place(logits, bias, targets, ignore_id, label_smoothing, share):
    ignore_id = -1 if ignore_id is None else ignore_id  # no counted target is negative
    number = logits.dtype.type
    targets, bias = np.ascontiguousarray(targets).reshape(-1), np.ascontiguousarray(bias)
    loss = _differentiate(as_rows(logits), bias, targets, np.int64(ignore_id), number(label_smoothing), number(share))
    return number(loss * share)


@kernel
def _differentiate(logits, bias, targets, ignore_id, smoothing, share):
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
