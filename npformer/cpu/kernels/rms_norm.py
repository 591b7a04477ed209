"""Root-mean-square normalisation, one row at a time."""

import numpy as np

from npformer import reference
from npformer.cpu import sums
from npformer.cpu.backend import as_rows, kernel_of
from npformer.cpu.jit import kernel
from npformer.cpu.memory import empty
from npformer.cpu.scalar import like, reciprocal_root


@kernel_of(reference.rms_norm)
def rms_norm(x, gain, eps):
    y, rstd = empty(x.shape, x.dtype), np.empty((*x.shape[:-1], 1), x.dtype)
    _scale_rows(as_rows(x), gain, x.dtype.type(eps), as_rows(y), rstd.reshape(-1))
    return y, rstd


@kernel_of(reference.rms_norm_backward)
def rms_norm_backward(dy, x, gain, rstd):
    dx, dgain = empty(x.shape, x.dtype), np.empty(x.shape[-1], x.dtype)
    _scale_backward(as_rows(dy), as_rows(x), gain, rstd.reshape(-1), as_rows(dx), dgain)
    return dx, dgain


@kernel
def _scale_rows(x, gain, eps, y, rstd):
    n, D = x.shape
    for i in range(n):
        r = reciprocal_root(sums.sum_of_products(x[i], x[i]) / like(eps, D) + eps)
        for j in range(D):
            y[i, j] = x[i, j] * r * gain[j]
        rstd[i] = r


@kernel
def _scale_backward(dy, x, gain, rstd, dx, dgain):
    n, D = x.shape
    gains = sums.start(dgain)
    for i in range(n):
        r, total = rstd[i], like(rstd[i], 0)
        for first in range(0, D, sums.BLOCK):
            part = like(r, 0)
            for k in range(min(sums.BLOCK, D - first)):
                j = np.uint64(first + k)
                part += dy[i, j] * gain[j] * (x[i, j] * r)
            total += part
        mean_product = total / like(r, D)
        for j in range(D):
            x_hat = x[i, j] * r
            dx[i, j] = r * (dy[i, j] * gain[j] - x_hat * mean_product)
            gains[0, j] += dy[i, j] * x_hat
        sums.carry(gains, i + 1)
    sums.finish(gains, dgain)
