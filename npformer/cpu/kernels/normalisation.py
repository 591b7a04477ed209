"""Layer normalisation and normalisation by the root mean square: ``reference.layer_norm``,
``rms_norm`` and their backward passes.

One row is computed after the other, so that it stays in the cache for all passes; the reference
goes through memory for each step of the formula.
"""

import numpy as np

from npformer import reference
from npformer.arrays import as_rows
from npformer.cpu import sums
from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import exact, inlined, kernel
from npformer.cpu.scalar import like, reciprocal_root
from npformer.runtime.memory import empty


@kernel_of(reference.layer_norm)
def layer_norm(x, gain, bias, eps):
    y = empty(x.shape, x.dtype)
    mean, rstd = np.empty((2, *x.shape[:-1], 1), x.dtype)
    normalise_rows(
        as_rows(x), gain, bias, x.dtype.type(eps), as_rows(y), mean.reshape(-1), rstd.reshape(-1)
    )
    return y, mean, rstd


@kernel_of(reference.layer_norm_backward)
def layer_norm_backward(dy, x, gain, mean, rstd):
    dx = empty(x.shape, x.dtype)
    dgain, dbias = np.empty((2, x.shape[-1]), x.dtype)
    arrays = as_rows(dy), as_rows(x), gain, mean.reshape(-1), rstd.reshape(-1)
    _normalise_backward(*arrays, as_rows(dx), dgain, dbias)
    return dx, dgain, dbias


@inlined
def normalise_rows(x, gain, bias, eps, y, mean, rstd):
    """Layer normalisation of rows. y may be x itself."""
    n, D = x.shape
    for i in range(n):
        m = sums.sum_of(x[i]) / like(eps, D)
        total = like(eps, 0)
        squares = like(eps, 0)
        for first in range(0, D, sums.BLOCK):
            deviations = like(eps, 0)
            their_squares = like(eps, 0)
            for j in sums.block(first, D):
                deviations += x[i, j] - m
                their_squares += (x[i, j] - m) * (x[i, j] - m)
            total += deviations
            squares += their_squares
        error = total / like(eps, D)  # the rounding error of the mean
        m += error
        r = reciprocal_root(abs(squares / like(eps, D) - error * error) + eps)
        if not r > like(eps, 0):  # 0 or NaN
            m, r = _moments_of_huge_row(x[i], eps, True)
        for j in range(D):
            y[i, j] = (x[i, j] - m) * r * gain[j] + bias[j]
        mean[i] = m
        rstd[i] = r


@exact  # reordered, the square of a product would become a product of squares, which overflow
def _moments_of_huge_row(x, eps, is_centred):
    """The mean (or 0) and rstd of a row whose sum or squares overflow: they are computed in a
    larger unit.
    """
    per_unit = 2.0**-80 if x.itemsize == 4 else 2.0**-640
    m = squares = 0.0
    for _ in range(3):  # the mean, then its rounding error, then the squares around it
        deviations = squares = 0.0
        for j in range(x.size):
            deviation = x[j] * per_unit - m
            deviations += deviation
            squares += deviation * deviation
        if is_centred:
            m += deviations / x.size
    variance = squares / x.size + eps * per_unit * per_unit
    if variance == 0:  # all numbers are the same, and eps vanishes beside them
        return like(eps, m / per_unit), reciprocal_root(eps)
    return like(eps, m / per_unit), like(eps, per_unit / np.sqrt(variance))


@kernel
def _normalise_backward(dy, x, gain, mean, rstd, dx, dgain, dbias):
    n, D = x.shape
    gains = sums.start(dgain)
    biases = sums.start(dbias)
    for i in range(n):
        m = mean[i]
        r = rstd[i]
        total = like(rstd[i], 0)
        total_product = like(rstd[i], 0)
        for first in range(0, D, sums.BLOCK):
            part = like(r, 0)
            product = like(r, 0)
            for j in sums.block(first, D):
                x_hat = (x[i, j] - m) * r
                dx_hat = dy[i, j] * gain[j]
                part += dx_hat
                product += dx_hat * x_hat
            total += part
            total_product += product
        mean_dx_hat = total / like(r, D)
        mean_product = total_product / like(r, D)
        for j in range(D):
            x_hat = (x[i, j] - m) * r
            dx[i, j] = r * (dy[i, j] * gain[j] - mean_dx_hat - x_hat * mean_product)
            gains[0, j] += dy[i, j] * x_hat
            biases[0, j] += dy[i, j]
        sums.carry(gains, i + 1)
        sums.carry(biases, i + 1)
    sums.finish(gains, dgain)
    sums.finish(biases, dbias)


@kernel_of(reference.rms_norm)
def rms_norm(x, gain, eps):
    y = empty(x.shape, x.dtype)
    rstd = np.empty((*x.shape[:-1], 1), x.dtype)
    scale_rows(as_rows(x), gain, x.dtype.type(eps), as_rows(y), rstd.reshape(-1))
    return y, rstd


@kernel_of(reference.rms_norm_backward)
def rms_norm_backward(dy, x, gain, rstd):
    dx = empty(x.shape, x.dtype)
    dgain = np.empty(x.shape[-1], x.dtype)
    _scale_backward(as_rows(dy), as_rows(x), gain, rstd.reshape(-1), as_rows(dx), dgain)
    return dx, dgain


@inlined
def scale_rows(x, gain, eps, y, rstd):
    """Normalisation of rows by the root mean square. y may be x itself."""
    n, D = x.shape
    for i in range(n):
        r = reciprocal_root(sums.sum_of_products(x[i], x[i]) / like(eps, D) + eps)
        if not r > like(eps, 0):
            _, r = _moments_of_huge_row(x[i], eps, False)
        for j in range(D):
            y[i, j] = x[i, j] * r * gain[j]
        rstd[i] = r


@kernel
def _scale_backward(dy, x, gain, rstd, dx, dgain):
    n, D = x.shape
    gains = sums.start(dgain)
    for i in range(n):
        r = rstd[i]
        total = like(rstd[i], 0)
        for first in range(0, D, sums.BLOCK):
            part = like(r, 0)
            for j in sums.block(first, D):
                part += dy[i, j] * gain[j] * (x[i, j] * r)
            total += part
        mean_product = total / like(r, D)
        for j in range(D):
            x_hat = x[i, j] * r
            dx[i, j] = r * (dy[i, j] * gain[j] - x_hat * mean_product)
            gains[0, j] += dy[i, j] * x_hat
        sums.carry(gains, i + 1)
    sums.finish(gains, dgain)
