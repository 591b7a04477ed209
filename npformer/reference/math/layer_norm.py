"""Layer normalisation (Ba, Kiros and Hinton 2016).

Each row, which is the last axis, is normalised alone; gain and bias have a number for each of its D
places. Two numbers of each row are saved for the backward pass, in axes of size 1, so that they
broadcast to the row.
"""

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation
from npformer.operations.settings import LAYER_NORM_EPS
from npformer.reference.math.linear import sum_over_rows
from npformer.reference.math.moments import mean_of_rows, reciprocal_root_mean_square


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
