"""Layer normalisation (Ba, Kiros and Hinton 2016), and that by the root mean square (Zhang and
Sennrich 2019).

Each row, which is the last axis, is normalised alone; gain and bias have a number for each of its D
places. One or two numbers of each row are saved for the backward pass, in axes of size 1, so that
they broadcast to the row.
"""

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation
from npformer.operations.settings import LAYER_NORM_EPS, RMS_NORM_EPS
from npformer.reference.math.linear import sum_over_rows


@operation("x: ... D>0, gain: D, bias: D -> y: ... D, mean: ... 1 wide, rstd: ... 1 wide")
def layer_norm(
    x: Array, gain: Array, bias: Array, eps: float = LAYER_NORM_EPS
) -> tuple[Array, Array, Array]:
    """Normalise each row to mean 0 and variance 1, then multiply by a learned gain and add a
    learned bias.

    y = (x - mean) · rstd · gain + bias, with rstd = 1/√(variance + eps) and the biased variance.
    The variance is computed from the deviations x - mean, because E[x²] - E[x]² loses all digits if
    the mean is large. In exact arithmetic the mean of the deviations is 0; its rounding error is
    added to the mean.

    Returns
    -------
    mean, rstd
        For the backward pass; float32 if ``x`` has half precision.

    >>> layer_norm(np.array([1.0, 3.0]), np.ones(2), np.zeros(2))[0].round(4)
    array([-1.,  1.])
    """
    mean = mean_of_rows(x)
    mean = mean + mean_of_rows(x - mean)
    deviations = x - mean
    rstd = reciprocal_root_mean_square(deviations, eps)
    y = deviations * rstd * gain + bias
    return y, mean, rstd


@backward_of(layer_norm)
def layer_norm_backward(
    dy: Array, x: Array, gain: Array, mean: Array, rstd: Array
) -> tuple[Array, Array, Array]:
    """The gradients (dx, dgain, dbias).

    With x̂ = (x - mean) · rstd and dx̂ = dy · gain: dx = rstd (dx̂ - mean(dx̂) - x̂ mean(dx̂ x̂)).
    The two subtracted terms remove the components of dx̂ that would shift or scale the whole row,
    since normalisation undoes both.

    >>> x, gain = np.array([-1.0, -1.0, 1.0, 1.0]), np.ones(4)  # mean 0, variance 1: x̂ = x
    >>> y, mean, rstd = layer_norm(x, gain, np.zeros(4), eps=1e-9)
    >>> dx, dgain, dbias = layer_norm_backward(np.array([8.0, 0.0, 0.0, 4.0]), x, gain, mean, rstd)
    >>> dx.round(6)  # (8, 0, 0, 4) - 3 + x̂: orthogonal to (1, 1, 1, 1) and to x̂
    array([ 4., -4., -2.,  2.])
    >>> dgain.round(6), dbias
    (array([-8.,  0.,  0.,  4.]), array([8., 0., 0., 4.]))
    """
    x_hat = (x - mean) * rstd
    dx_hat = dy * gain
    shift = dx_hat.mean(axis=-1, keepdims=True)
    scale = (dx_hat * x_hat).mean(axis=-1, keepdims=True)
    dx = rstd * (dx_hat - shift - x_hat * scale)
    dgain = sum_over_rows(dy * x_hat)
    dbias = sum_over_rows(dy)
    return dx, dgain, dbias


@operation("x: ... D>0, gain: D -> y: ... D, rstd: ... 1 wide")
def rms_norm(x: Array, gain: Array, eps: float = RMS_NORM_EPS) -> tuple[Array, Array]:
    """Scale each row to a root mean square of 1, then multiply by a learned gain.

    y = x · rstd · gain, rstd = 1/√(mean(x²) + eps). It is layer normalisation without the shift: no
    mean is subtracted, and no bias is added.

    Returns
    -------
    rstd
        For the backward pass; float32 if ``x`` has half precision.

    >>> rms_norm(np.array([3.0, 4.0, 0.0, 0.0]), np.ones(4))[0].round(4)
    array([1.2, 1.6, 0. , 0. ])
    """
    rstd = reciprocal_root_mean_square(x, eps)
    y = x * rstd * gain
    return y, rstd


@backward_of(rms_norm)
def rms_norm_backward(dy: Array, x: Array, gain: Array, rstd: Array) -> tuple[Array, Array]:
    """The gradients (dx, dgain).

    With x̂ = x · rstd and dx̂ = dy · gain: dx = rstd (dx̂ - x̂ mean(dx̂ x̂)). The subtracted term
    removes the component of dx̂ that would scale the whole row, since normalisation undoes it.

    >>> x, gain = np.array([-1.0, 1.0]), np.ones(2)  # root mean square 1: x̂ = x
    >>> y, rstd = rms_norm(x, gain, eps=1e-9)
    >>> dx, dgain = rms_norm_backward(np.array([2.0, 4.0]), x, gain, rstd)
    >>> dx.round(6), dgain.round(6)  # dx = (2, 4) - x̂: orthogonal to x̂
    (array([3., 3.]), array([-2.,  4.]))
    """
    x_hat = x * rstd
    dx_hat = dy * gain
    scale = (dx_hat * x_hat).mean(axis=-1, keepdims=True)
    dx = rstd * (dx_hat - x_hat * scale)
    dgain = sum_over_rows(dy * x_hat)
    return dx, dgain


def mean_of_rows(x):
    """mean(x) over the last axis.

    >>> mean_of_rows(np.array([[1.0, 3.0], [1e308, 1e308]]))
    array([[2.e+000],
           [1.e+308]])
    """
    with np.errstate(over="ignore"):
        mean = x.mean(axis=-1, keepdims=True)
    if not np.isfinite(mean).all():
        unit = _units(~np.isfinite(mean), x)
        mean = (x / unit).mean(axis=-1, keepdims=True) * unit
    return mean


def reciprocal_root_mean_square(x, eps):
    """1/√(mean(x²) + eps) over the last axis.

    >>> x = np.array([[1.0, 7.0], [1e200, 7e200]])  # mean(x²) is 25, and 25e400
    >>> reciprocal_root_mean_square(x, eps=1e-12).round(201)
    array([[2.e-001],
           [2.e-201]])
    """
    with np.errstate(over="ignore"):
        result = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    if not result.all():  # 1/√∞ is 0
        unit = _units(result == 0, x)
        x = x / unit
        result = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps / unit / unit) / unit
    return result


def _units(overflows, x):
    """What each row is divided by: 1, or where it overflows a number so large that neither sum nor
    squares do.

    It is a power of two, so that the division changes no digit.
    """
    dtype = x.real.dtype
    # 5/8 of the largest exponent, and not half of it, as a sum of D squares has to fit.
    large = np.ldexp(dtype.type(1), 5 * np.finfo(dtype).maxexp // 8)
    return np.where(overflows, large, dtype.type(1))
