"""Root-mean-square normalisation (Zhang and Sennrich 2019).

Each row, which is the last axis, is scaled alone; the gain has a number for each of its D places.
One number of each row is saved for the backward pass, in an axis of size 1.
"""

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation
from npformer.operations.settings import RMS_NORM_EPS
from npformer.reference.math.linear import sum_over_rows
from npformer.reference.math.moments import reciprocal_root_mean_square


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
