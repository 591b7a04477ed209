"""The loss of pairs of predictions that should agree, and its gradient, which is written over the logits."""

import math

import numpy as np

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.cross_entropy import copied, differentiated, mapped
from npformer.cpu.jit import kernel
from npformer.cpu.scalar import exp, largest, like


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
    total, log_total, divergence = np.empty((3, 2), logits.dtype)
    loss = 0.0
    for i in range(n):
        target = targets[i]
        if not counted[i]:
            logits[:, i] = like(share, 0)
            continue
        for side in range(2):  # shifted logits, exp of them
            row, sum_of_shifted = logits[side, i], like(share, 0)
            for j in range(len(bias)):
                row[j] += bias[j]
            peak = largest(logits[side], i, V)
            for j in range(V):  # stored, for the same reason as in cross_entropy.py
                row[j] -= peak
            total[side] = like(share, 0)
            for j in range(V):
                p[side, j] = exp(row[j])
                total[side] += p[side, j]
                sum_of_shifted += row[j]
            log_total[side] = math.log(total[side])
            loss += (one - smoothing) * (log_total[side] - row[target])
            if smoothing > 0:
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
    return loss / 2
