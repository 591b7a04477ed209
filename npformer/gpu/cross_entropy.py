"""The loss and its gradient, a block of threads for each token."""

import warnings

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.arrays import as_rows, contiguous, size_of, suit
from npformer.gpu.launch import THREADS, for_each_row, launch, real
from npformer.gpu.linear import fits, linear
from npformer.reference.checks import check_ids, check_int, check_not_negative

NOTHING_IGNORED = -1


def cross_entropy(logits, targets, *, ignore_id=None, label_smoothing=0.0, n_tokens=None):
    """As ``reference.cross_entropy``."""
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing, "n_tokens": n_tokens}
    if not _fits(logits, targets, label_smoothing):
        return reference.cross_entropy(logits, targets, **options)
    return _cross_entropy(logits, cupy.empty(logits.shape, logits.dtype), targets, **options)


def linear_cross_entropy(x, weight, bias, targets, *, ignore_id=None, label_smoothing=0.0, n_tokens=None):
    """As ``reference.linear_cross_entropy``: the gradient is written over the logits."""
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing, "n_tokens": n_tokens}
    if not fits(x, weight, bias):
        return reference.linear_cross_entropy(x, weight, bias, targets, **options)
    logits = linear(x, weight, bias)
    if not _fits(logits, targets, label_smoothing):
        return reference.cross_entropy(logits, targets, **options)
    return _cross_entropy(logits, logits, targets, **options)


def paired_cross_entropy(logits, targets, consistency, *, ignore_id=None, label_smoothing=0.0, n_tokens=None):
    """As ``reference.paired_cross_entropy``."""
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing, "n_tokens": n_tokens}
    if not _pairs_fit(logits, targets, label_smoothing):
        return reference.paired_cross_entropy(logits, targets, consistency, **options)
    dlogits = cupy.empty(logits.shape, logits.dtype)
    return _paired_cross_entropy(logits, dlogits, targets, consistency, **options)


def linear_paired_cross_entropy(
    x, weight, bias, targets, consistency, *, ignore_id=None, label_smoothing=0.0, n_tokens=None
):
    """As ``reference.linear_paired_cross_entropy``: the gradient is written over the logits."""
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing, "n_tokens": n_tokens}
    if not fits(x, weight, bias):
        return reference.linear_paired_cross_entropy(x, weight, bias, targets, consistency, **options)
    logits = linear(x, weight, bias)
    if not _pairs_fit(logits, targets, label_smoothing):
        return reference.paired_cross_entropy(logits, targets, consistency, **options)
    return _paired_cross_entropy(logits, logits, targets, consistency, **options)


def _pairs_fit(logits, targets, label_smoothing):
    return logits.ndim > 1 and len(logits) == 2 and _fits(logits[0], targets, label_smoothing)


def _fits(logits, targets, label_smoothing):
    are_ids = isinstance(targets, cupy.ndarray) and targets.dtype.kind in "iu"
    return suit(logits) and are_ids and targets.shape == logits.shape[:-1] and 0 <= label_smoothing <= 1


def _share(targets, ignore_id, n_tokens):
    """Of each counted token in the mean, on the GPU."""
    if isinstance(n_tokens, cupy.ndarray):
        return 1 / n_tokens
    if n_tokens is not None:
        check_int("n_tokens", n_tokens, at_least=1)
    elif ignore_id is None:
        n_tokens = targets.size
    else:
        n_tokens = int((targets != ignore_id).sum())
    if n_tokens == 0:
        warnings.warn("cross_entropy: no target is counted, the loss is 0", stacklevel=5)
    return cupy.full((), 1 / n_tokens if n_tokens else 0.0)


def _cross_entropy(logits, dlogits, targets, ignore_id, label_smoothing, n_tokens):
    share = _share(targets, ignore_id, n_tokens)
    return _differentiate("cross_entropy", logits, dlogits, targets, ignore_id, share, label_smoothing)


def _paired_cross_entropy(logits, dlogits, targets, consistency, ignore_id, label_smoothing, n_tokens):
    check_not_negative(consistency=consistency)
    share, numbers = _share(targets, ignore_id, n_tokens), (label_smoothing, consistency)
    return _differentiate("paired_cross_entropy", logits, dlogits, targets, ignore_id, share, *numbers)


def _differentiate(kernel, logits, dlogits, targets, ignore_id, share, *numbers):
    """Write ``dlogits``; a block for each target."""
    V, dtype, wide = logits.shape[-1], logits.dtype, real(logits.dtype)
    check_ids(targets, V, "targets", ignore_id)
    flat, n = contiguous(targets.astype(np.int64, copy=False)), targets.size
    losses, loss = cupy.empty(n, wide), cupy.empty((), wide)
    ignored = NOTHING_IGNORED if ignore_id is None else ignore_id
    options = *size_of(V, ignored), *map(wide.type, numbers), share.astype(wide, copy=False)
    for_each_row("cross_entropy", kernel, dtype, n, as_rows(logits), flat, dlogits, losses, *options)
    launch("cross_entropy", "add_up", dtype, (1,), (THREADS,), losses, loss, *size_of(n))
    return loss, dlogits
