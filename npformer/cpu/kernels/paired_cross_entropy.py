"""The loss of pairs of predictions that should agree, and its gradient, which is written over the logits."""

import math

import numpy as np

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import kernel
from npformer.cpu.kernels.cross_entropy import copied, differentiated, mapped
from npformer.cpu.scalar import exp_negative, largest, like
from npformer.cpu.sums import BLOCK


@kernel_of(reference.paired_cross_entropy)
def paired_cross_entropy(logits, targets, consistency, ignore_id, label_smoothing, n_tokens, loss_scale):
    numbers = label_smoothing, consistency
    return differentiated(_differentiate, copied(logits), None, targets, ignore_id, n_tokens, loss_scale, *numbers)


@kernel_of(reference.linear_paired_cross_entropy, as_it_lies="weight")
def linear_paired_cross_entropy(
    x, weight, bias, targets, consistency, ignore_id, label_smoothing, n_tokens, loss_scale
):
    numbers = label_smoothing, consistency
    return differentiated(_differentiate, mapped(x, weight), bias, targets, ignore_id, n_tokens, loss_scale, *numbers)


@kernel
def _differentiate(logits, bias, targets, counted, share, smoothing, consistency):
    _, n, V = logits.shape
    share /= like(share, 2)  # for each of the two predictions
    consistency /= like(share, 2)  # for each of the two divergences
    p, one = np.empty((2, V), logits.dtype), like(share, 1)
    total, log_total = np.empty((2, 2))
    loss = 0.0
    for i in range(n):
        target = targets[i]
        if not counted[i]:
            logits[:, i] = like(share, 0)
            continue
        for side in range(2):  # shifted logits, exp of them
            row, sum_of_shifted = logits[side, i], 0.0
            for j in range(len(bias)):
                row[j] += bias[j]
            peak = largest(logits[side], i, V)
            for j in range(V):  # stored, for the same reason as in cross_entropy.py
                row[j] -= peak
            total[side] = 0.0
            for first in range(0, V, BLOCK):
                part, shifted = like(share, 0), like(share, 0)
                for k in range(min(BLOCK, V - first)):
                    j = np.uint64(first + k)
                    p[side, j] = exp_negative(row[j])
                    part += p[side, j]
                    shifted += row[j]
                total[side], sum_of_shifted = total[side] + part, sum_of_shifted + shifted
            log_total[side] = math.log(total[side])
            loss += (one - smoothing) * (log_total[side] - row[target])
            if smoothing > 0:
                loss += smoothing * (log_total[side] - sum_of_shifted / V)

        x, y, less = logits[0, i], logits[1, i], like(share, log_total[0] - log_total[1])
        divergence_x, divergence_y = 0.0, 0.0
        for first in range(0, V, BLOCK):
            part_x, part_y = like(share, 0), like(share, 0)
            for k in range(min(BLOCK, V - first)):
                j = np.uint64(first + k)
                apart = x[j] - y[j] - less
                part_x += p[0, j] * apart
                part_y -= p[1, j] * apart
            divergence_x, divergence_y = divergence_x + part_x, divergence_y + part_y
        divergence_x, divergence_y = divergence_x / total[0], divergence_y / total[1]
        loss += consistency * (divergence_x + divergence_y)

        everywhere, weight = share * smoothing / like(share, V), share * consistency
        share_x, share_y = like(share, 1 / total[0]), like(share, 1 / total[1])
        kl_x, kl_y = like(share, divergence_x), like(share, divergence_y)
        for j in range(V):
            apart, p_x, p_y = x[j] - y[j] - less, p[0, j] * share_x, p[1, j] * share_y
            between = weight * (p_x - p_y)
            x[j] = p_x * (share + weight * (apart - kl_x)) + between - everywhere
            y[j] = p_y * (share - weight * (apart + kl_y)) - between - everywhere
        x[target] -= share * (one - smoothing)
        y[target] -= share * (one - smoothing)
    return loss / 2
