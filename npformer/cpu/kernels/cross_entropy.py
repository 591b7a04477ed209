"""The losses with their gradients: ``reference.cross_entropy`` and ``paired_cross_entropy``, also
after a linear map.

The gradient is written over the logits, the largest array of a step with a large vocabulary: each
row is read from memory once, and no array of probabilities is made.
"""

import math

import numpy as np

from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.kernels.linear import linear
from npformer.cpu.rows import add_row, largest
from npformer.cpu.scalar import exp_negative, like
from npformer.cpu.sums import BLOCK, block
from npformer.kernels.shared import make_loss_kernels
from npformer.reference.math.cross_entropy import is_counted
from npformer.runtime.memory import empty


def _loss_and_gradient(logits, bias, targets, options, may_overwrite):
    """The loss and its gradient: the kernels turn logits into their gradient in place."""
    number = logits.dtype.type
    dlogits = logits
    if not may_overwrite:
        dlogits = empty(logits.shape, logits.dtype)
        np.copyto(dlogits, logits)
    if bias is None:
        bias = np.empty(0, number)
    ids = targets.reshape(-1)
    counted = is_counted(ids, ignore_id=options.ignore_id)
    V = logits.shape[-1]
    smoothing = number(options.label_smoothing)
    # The mean over n tokens, or Σ [ce(p) + ce(p') + α/2 (KL(p‖p') + KL(p'‖p))] / 2n.
    n_predictions = 1 if options.consistency is None else 2
    share = 1 / (n_predictions * options.n_tokens)
    rows = dlogits.reshape(n_predictions, len(ids), V)
    arguments = (bias, ids, counted, number(share * options.loss_scale), smoothing)
    if options.consistency is None:
        total = _differentiate(rows[0], *arguments)
    else:
        total = _differentiate_pairs(rows, *arguments, number(options.consistency / 2))
    return number(total * share), dlogits


@kernel
def _differentiate(logits, bias, targets, counted, share, smoothing):
    """Σ ce(p) of rows (n, V), which become share times its gradient."""
    n, V = logits.shape
    one = like(share, 1)
    loss = 0.0
    for i in range(n):
        row = logits[i]
        target = targets[i]
        if not counted[i]:
            row[:] = 0
            continue
        loss, total, _ = _add_cross_entropy(loss, logits, i, bias, target, smoothing, row)
        scale = like(share, share / total)
        everywhere = share * smoothing / like(share, V)
        for j in range(V):
            row[j] = row[j] * scale - everywhere
        row[target] -= share * (one - smoothing)
    return loss


@kernel
def _differentiate_pairs(logits, bias, targets, counted, share, smoothing, half_alpha):
    """Σ [ce(p) + ce(p') + α/2 (KL(p‖p') + KL(p'‖p))] of rows (2, n, V), which become share times
    its gradient. Below, p and p' are p1 and p2, and x1 and x2 their shifted logits.
    """
    _, n, V = logits.shape
    exponentials = np.empty((2, V), logits.dtype)
    total = np.empty(2)
    log_total = np.empty(2)
    one = like(share, 1)
    loss = 0.0
    for i in range(n):
        target = targets[i]
        if not counted[i]:
            logits[:, i] = 0
            continue
        for side in range(2):
            loss, total[side], log_total[side] = _add_cross_entropy(
                loss, logits[side], i, bias, target, smoothing, exponentials[side]
            )
        x1 = logits[0, i]
        x2 = logits[1, i]
        log_ratio = like(share, log_total[0] - log_total[1])
        kl_12, kl_21 = _divergences(x1, x2, log_ratio, exponentials, total)
        loss += half_alpha * (kl_12 + kl_21)

        weight = share * half_alpha
        everywhere = share * smoothing / like(share, V)
        inverse1 = like(share, 1 / total[0])
        inverse2 = like(share, 1 / total[1])
        kl_of_1 = like(share, kl_12)
        kl_of_2 = like(share, kl_21)
        for j in range(V):
            log_p1_p2 = x1[j] - x2[j] - log_ratio
            p1 = exponentials[0, j] * inverse1
            p2 = exponentials[1, j] * inverse2
            between = weight * (p1 - p2)
            x1[j] = p1 * (share + weight * (log_p1_p2 - kl_of_1)) + between - everywhere
            x2[j] = p2 * (share - weight * (log_p1_p2 + kl_of_2)) - between - everywhere
        x1[target] -= share * (one - smoothing)
        x2[target] -= share * (one - smoothing)
    return loss


@inlined
def _add_cross_entropy(loss, logits, i, bias, target, smoothing, exponentials):
    """Add -Σ q log softmax of row i to the loss, and subtract its peak from the row.

    Return the loss, the sum of the exponentials, which may be written over the row, and its
    logarithm. The loss comes in so that its two terms are added to it one after the other: their
    sum would be rounded on its own.
    """
    row = logits[i]
    V = len(row)
    one = like(smoothing, 1)
    add_row(bias, row)
    peak = largest(logits, i, V)
    peak = like(smoothing, 0) if peak == -np.inf else peak
    _subtract(peak, row)
    logit = row[target]
    total, sum_of_shifted = _exponentials(row, exponentials)
    total = 1.0 if total == 0 else total
    log_total = math.log(total)
    loss += (one - smoothing) * (log_total - logit)
    if smoothing > 0:
        loss += smoothing * (log_total - sum_of_shifted / V)
    return loss, total, log_total


@inlined
def _subtract(peak, row):
    """Stored, as LLVM might turn (x - peak) - log_total into x - (peak + log_total)."""
    for j in range(len(row)):
        row[j] -= peak


@inlined
def _exponentials(shifted, out):
    """Write exp of a row of shifted logits, to the same row or another; return Σ exp and the sum of
    the logits.
    """
    total = 0.0
    sum_of_shifted = 0.0
    for first in range(0, len(shifted), BLOCK):
        part = like(shifted[0], 0)
        part_of_shifted = like(shifted[0], 0)
        for j in block(first, len(shifted)):
            x = shifted[j]
            e = exp_negative(x)
            out[j] = e
            part += e
            part_of_shifted += x
        total += part
        sum_of_shifted += part_of_shifted
    return total, sum_of_shifted


@inlined
def _divergences(x1, x2, log_ratio, exponentials, total):
    """KL(p1‖p2) and KL(p2‖p1), where log p1 - log p2 is x1 - x2 - log_ratio."""
    V = len(x1)
    kl_12 = 0.0
    kl_21 = 0.0
    for first in range(0, V, BLOCK):
        part_12 = like(log_ratio, 0)
        part_21 = like(log_ratio, 0)
        for j in block(first, V):
            log_p1_p2 = x1[j] - x2[j] - log_ratio
            part_12 += exponentials[0, j] * log_p1_p2
            part_21 -= exponentials[1, j] * log_p1_p2
        kl_12 += part_12
        kl_21 += part_21
    return kl_12 / total[0], kl_21 / total[1]


make_loss_kernels(kernel_of, linear, _loss_and_gradient)
