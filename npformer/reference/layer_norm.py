"""Layer normalisation (Ba, Kiros and Hinton 2016)."""

from npformer.reference.arrays import Array, namespace, narrow, quiet, widen
from npformer.reference.checks import check_positive, check_shape
from npformer.reference.linear import rows


@quiet
def layer_norm(x: Array, gain: Array, bias: Array, eps: float = 1e-5) -> tuple[Array, Array, Array]:
    """Shift and scale each row to mean 0 and variance 1, then by a learned gain and bias.

    y = (x - mean) · rstd · gain + bias, rstd = 1/√(variance + eps), with the biased variance, computed
    from the deviations: E[x²] - E[x]² loses all digits when the mean is large.

    Parameters
    ----------
    x : (..., D)
    gain, bias : (D,)
    eps : float
        Inside the root.

    Returns
    -------
    y : (..., D)
    mean, rstd : (..., 1)
        What the backward pass needs besides ``x``; float32 where ``x`` has half precision.

    Examples
    --------
    >>> import numpy as np
    >>> layer_norm(np.array([1.0, 3.0]), np.ones(2), np.zeros(2))[0].round(4)
    array([-1.,  1.])
    """
    xp = namespace(x=x, gain=gain, bias=bias)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"x has shape {x.shape}, expected a last axis of at least 1: there is no mean of nothing")
    check_shape(gain=(gain, x.shape[-1:]), bias=(bias, x.shape[-1:]))
    check_positive(eps=eps)
    wide = widen(x)
    mean = wide.mean(axis=-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(axis=-1, keepdims=True)
    rstd = 1 / xp.sqrt(variance + float(eps))
    y = (wide - mean) * rstd * gain + bias
    return narrow(y, x), mean, rstd


@quiet
def layer_norm_backward(dy: Array, x: Array, gain: Array, mean: Array, rstd: Array) -> tuple[Array, Array, Array]:
    """The gradients (dx, dgain, dbias).

    With x̂ = (x - mean) · rstd: what would shift or stretch the whole row is projected out, since
    normalisation undoes it: dx = rstd (dx̂ - mean(dx̂) - x̂ mean(dx̂ x̂)), dx̂ = dy · gain. A row whose dy is 0 passes
    nothing, even if its x holds NaN.
    """
    xp = namespace(dy=dy, x=x, gain=gain, mean=mean, rstd=rstd)
    check_shape(dy=(dy, x.shape), gain=(gain, x.shape[-1:]))
    check_shape(mean=(mean, (*x.shape[:-1], 1)), rstd=(rstd, mean.shape))
    wide_dy = widen(dy)
    used = (dy != 0).any(axis=-1, keepdims=True)
    x_hat = xp.where(used, (x - mean) * rstd, 0)
    dx_hat = wide_dy * gain
    dx = rstd * (dx_hat - dx_hat.mean(axis=-1, keepdims=True) - x_hat * (dx_hat * x_hat).mean(axis=-1, keepdims=True))
    dgain = rows(wide_dy * x_hat).sum(axis=0)
    dbias = rows(wide_dy).sum(axis=0)
    return narrow(xp.where(used, dx, 0), x), narrow(dgain, gain), narrow(dbias, gain)
