"""Layer normalisation, a row at a time: its entries stay in the cache for all passes over them."""

import numpy as np

from npformer import reference
from npformer.cpu.arrays import as_rows, suit
from npformer.cpu.jit import kernel
from npformer.cpu.memory import empty
from npformer.cpu.scalar import like
from npformer.reference.checks import check_positive


def layer_norm(x, gain, bias, eps=1e-5):
    """As ``reference.layer_norm``."""
    if not suit(x, gain, bias) or x.size == 0 or x.ndim == 0 or not gain.shape == bias.shape == x.shape[-1:]:
        return reference.layer_norm(x, gain, bias, eps)
    check_positive(eps=eps)
    y = empty(x.shape, x.dtype)
    mean, rstd = np.empty((2, *x.shape[:-1], 1), x.dtype)
    gain, bias = np.ascontiguousarray(gain), np.ascontiguousarray(bias)
    normalise_rows(as_rows(x), gain, bias, x.dtype.type(eps), as_rows(y), mean.reshape(-1), rstd.reshape(-1))
    return y, mean, rstd


def layer_norm_backward(dy, x, gain, mean, rstd):
    """As ``reference.layer_norm_backward``."""
    if not suit(x, dy, gain, mean, rstd) or x.size == 0 or not _shapes_fit(dy, x, gain, mean, rstd):
        return reference.layer_norm_backward(dy, x, gain, mean, rstd)
    dx = empty(x.shape, x.dtype)
    dgain, dbias = np.zeros((2, x.shape[-1]), x.dtype)
    gain, mean, rstd = (np.ascontiguousarray(array).reshape(-1) for array in (gain, mean, rstd))
    _normalise_backward(as_rows(dy), as_rows(x), gain, mean, rstd, as_rows(dx), dgain, dbias)
    return dx, dgain, dbias


def _shapes_fit(dy, x, gain, mean, rstd):
    return dy.shape == x.shape and gain.shape == x.shape[-1:] and mean.shape == rstd.shape == (*x.shape[:-1], 1)


@kernel
def normalise_rows(x, gain, bias, eps, y, mean, rstd):
    """y may be x itself."""
    n, D = x.shape
    for i in range(n):
        total = like(eps, 0)
        for j in range(D):
            total += x[i, j]
        m = total / like(eps, D)
        total = like(eps, 0)
        for j in range(D):
            total += (x[i, j] - m) * (x[i, j] - m)
        r = like(eps, 1) / np.sqrt(total / like(eps, D) + eps)
        for j in range(D):
            y[i, j] = (x[i, j] - m) * r * gain[j] + bias[j]
        mean[i], rstd[i] = m, r


@kernel
def _normalise_backward(dy, x, gain, mean, rstd, dx, dgain, dbias):
    n, D = x.shape
    zero = like(gain[0], 0)
    for i in range(n):
        m, r = mean[i], rstd[i]
        mean_dx_hat, mean_product, n_used = zero, zero, 0
        for j in range(D):
            x_hat, dx_hat = (x[i, j] - m) * r, dy[i, j] * gain[j]
            mean_dx_hat += dx_hat
            mean_product += dx_hat * x_hat
            n_used += dy[i, j] != zero
        if n_used == 0:  # no gradient, whatever x is: it may be NaN
            dx[i, :] = zero
            continue
        mean_dx_hat /= like(zero, D)
        mean_product /= like(zero, D)
        for j in range(D):
            x_hat = (x[i, j] - m) * r
            dx[i, j] = r * (dy[i, j] * gain[j] - mean_dx_hat - x_hat * mean_product)
            dgain[j] += dy[i, j] * x_hat
            dbias[j] += dy[i, j]
