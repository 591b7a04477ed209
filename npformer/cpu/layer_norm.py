"""Layer normalisation, one row at a time: a row stays in the cache for all passes over it."""

import numpy as np

from npformer import reference
from npformer.cpu.backend import as_rows, kernel_of
from npformer.cpu.jit import kernel
from npformer.cpu.memory import empty
from npformer.cpu.scalar import like, reciprocal_root


@kernel_of(reference.layer_norm)
def layer_norm(x, gain, bias, eps):
    y = empty(x.shape, x.dtype)
    mean, rstd = np.empty((2, *x.shape[:-1], 1), x.dtype)
    normalise_rows(as_rows(x), gain, bias, x.dtype.type(eps), as_rows(y), mean.reshape(-1), rstd.reshape(-1))
    return y, mean, rstd


@kernel_of(reference.layer_norm_backward)
def layer_norm_backward(dy, x, gain, mean, rstd):
    dx = empty(x.shape, x.dtype)
    dgain, dbias = np.zeros((2, x.shape[-1]), x.dtype)
    saved = gain, mean.reshape(-1), rstd.reshape(-1)
    _normalise_backward(as_rows(dy), as_rows(x), *saved, as_rows(dx), dgain, dbias)
    return dx, dgain, dbias


@kernel
def normalise_rows(x, gain, bias, eps, y, mean, rstd):
    """Layer normalisation of rows. y may be x itself."""
    n, D = x.shape
    for i in range(n):
        total = like(eps, 0)
        for j in range(D):
            total += x[i, j]
        m, total, squares = total / like(eps, D), like(eps, 0), like(eps, 0)
        for j in range(D):
            total += x[i, j] - m
            squares += (x[i, j] - m) * (x[i, j] - m)
        error = total / like(eps, D)  # the rounding error of the mean
        m += error
        r = reciprocal_root(abs(squares / like(eps, D) - error * error) + eps)
        for j in range(D):
            y[i, j] = (x[i, j] - m) * r * gain[j] + bias[j]
        mean[i], rstd[i] = m, r


@kernel
def _normalise_backward(dy, x, gain, mean, rstd, dx, dgain, dbias):
    n, D = x.shape
    for i in range(n):
        m, r = mean[i], rstd[i]
        mean_dx_hat, mean_product = like(r, 0), like(r, 0)
        for j in range(D):
            x_hat, dx_hat = (x[i, j] - m) * r, dy[i, j] * gain[j]
            mean_dx_hat += dx_hat
            mean_product += dx_hat * x_hat
        mean_dx_hat /= like(r, D)
        mean_product /= like(r, D)
        for j in range(D):
            x_hat = (x[i, j] - m) * r
            dx[i, j] = r * (dy[i, j] * gain[j] - mean_dx_hat - x_hat * mean_product)
            dgain[j] += dy[i, j] * x_hat
            dbias[j] += dy[i, j]
