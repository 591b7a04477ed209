"""The losses and their gradients, which are written over the logits: each row is read from memory
once.
"""

import math

import numpy as np

from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import inlined, kernel
from npformer.cpu.kernels.linear import linear
from npformer.cpu.rows import add_row
from npformer.cpu.scalar import exp_negative, largest, like
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
    share = 1 / options.n_tokens
    scaled_share = number(share * options.loss_scale)
    smoothing = number(options.label_smoothing)
    V = logits.shape[-1]
    if options.consistency is None:
        rows = dlogits.reshape(len(ids), V)
        total = _differentiate(rows, bias, ids, counted, scaled_share, smoothing)
    else:
        rows = dlogits.reshape(2, len(ids), V)
        consistency = number(options.consistency)
        total = _differentiate_pairs(rows, bias, ids, counted, scaled_share, smoothing, consistency)
    return number(total * share), dlogits


@kernel
def _differentiate(logits, bias, targets, counted, share, smoothing):
    n, V = logits.shape
    one = like(share, 1)
    loss = 0.0
    for i in range(n):
        row = logits[i]
        target = targets[i]
        if not counted[i]:
            row[:] = 0
            continue
        add_row(bias, row)
        peak = largest(logits, i, V)
        peak = like(share, 0) if peak == -np.inf else peak
        _subtract(peak, row)
        logit = row[target]
        total, sum_of_shifted = _exponentials(row, row)
        total = 1.0 if total == 0 else total
        log_total = math.log(total)
        loss += (one - smoothing) * (log_total - logit)
        if smoothing > 0:
            loss += smoothing * (log_total - sum_of_shifted / V)
        scale = like(share, share / total)
        everywhere = share * smoothing / like(share, V)
        for j in range(V):
            row[j] = row[j] * scale - everywhere
        row[target] -= share * (one - smoothing)
    return loss


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


@kernel
def _differentiate_pairs(logits, bias, targets, counted, share, smoothing, consistency):
    _, n, V = logits.shape
    share /= like(share, 2)  # for each of the two predictions
    consistency /= like(share, 2)  # for each of the two divergences
    p = np.empty((2, V), logits.dtype)
    one = like(share, 1)
    total, log_total = np.empty((2, 2))
    loss = 0.0
    for i in range(n):
        target = targets[i]
        if not counted[i]:
            logits[:, i] = 0
            continue
        for side in range(2):  # shifted logits, exp of them
            row = logits[side, i]
            add_row(bias, row)
            _subtract(largest(logits[side], i, V), row)
            total[side], sum_of_shifted = _exponentials(row, p[side])
            log_total[side] = math.log(total[side])
            loss += (one - smoothing) * (log_total[side] - row[target])
            if smoothing > 0:
                loss += smoothing * (log_total[side] - sum_of_shifted / V)

        x = logits[0, i]
        y = logits[1, i]
        less = like(share, log_total[0] - log_total[1])
        divergence_x = 0.0
        divergence_y = 0.0
        for first in range(0, V, BLOCK):
            part_x = like(share, 0)
            part_y = like(share, 0)
            for j in block(first, V):
                apart = x[j] - y[j] - less
                part_x += p[0, j] * apart
                part_y -= p[1, j] * apart
            divergence_x += part_x
            divergence_y += part_y
        divergence_x /= total[0]
        divergence_y /= total[1]
        loss += consistency * (divergence_x + divergence_y)

        everywhere = share * smoothing / like(share, V)
        weight = share * consistency
        share_x = like(share, 1 / total[0])
        share_y = like(share, 1 / total[1])
        kl_x = like(share, divergence_x)
        kl_y = like(share, divergence_y)
        for j in range(V):
            apart = x[j] - y[j] - less
            p_x = p[0, j] * share_x
            p_y = p[1, j] * share_y
            between = weight * (p_x - p_y)
            x[j] = p_x * (share + weight * (apart - kl_x)) + between - everywhere
            y[j] = p_y * (share - weight * (apart + kl_y)) - between - everywhere
        x[target] -= share * (one - smoothing)
        y[target] -= share * (one - smoothing)
    return loss / 2


make_loss_kernels(kernel_of, linear, _loss_and_gradient)
