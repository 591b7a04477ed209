"""Normalisation with learned parameters."""

from npformer.arrays import Array
from npformer.layers.types import Backward, Params
from npformer.operations.settings import LAYER_NORM_EPS, RMS_NORM_EPS
from npformer.reference import Ops


def layer_norm(
    ops: Ops, params: Params, x: Array, eps: float = LAYER_NORM_EPS
) -> tuple[Array, Backward]:
    """Layer normalisation with a learned gain and bias.

    Parameters
    ----------
    ops : Ops
    params : {"gain": (D,), "bias": (D,)}
    x : (..., D)
    eps : float
        Added to the variance.

    Returns
    -------
    y : (..., D)
    backward : dy -> (dx, grads)

    Examples
    --------
    >>> from npformer import layers, reference
    >>> params = {"gain": np.ones(2), "bias": np.zeros(2)}
    >>> y, backward = layers.layer_norm(reference.ops, params, np.array([[1.0, 3.0]]))
    >>> dx, grads = backward(np.array([[1.0, 0.0]]))
    >>> y.round(3), grads["bias"]
    (array([[-1.,  1.]]), array([1., 0.]))
    """
    gain, bias = params["gain"], params["bias"]
    y, mean, rstd = ops.layer_norm(x, gain, bias, eps)

    def backward(dy):
        dx, dgain, dbias = ops.layer_norm_backward(dy, x, gain, mean, rstd)
        return dx, {"gain": dgain, "bias": dbias}

    return y, backward


def rms_norm(
    ops: Ops, params: Params, x: Array, eps: float = RMS_NORM_EPS
) -> tuple[Array, Backward]:
    """Root-mean-square normalisation with a learned gain; it has no bias.

    Parameters
    ----------
    ops : Ops
    params : {"gain": (D,)}
    x : (..., D)
    eps : float
        Added to the mean square.

    Returns
    -------
    y : (..., D)
    backward : dy -> (dx, grads)

    Examples
    --------
    >>> from npformer import layers, reference
    >>> x = np.array([[3.0, 4.0, 0.0, 0.0]])
    >>> y, backward = layers.rms_norm(reference.ops, {"gain": np.ones(4)}, x)
    >>> y.round(3), backward(np.ones_like(y))[1]["gain"].round(3)
    (array([[1.2, 1.6, 0. , 0. ]]), array([1.2, 1.6, 0. , 0. ]))
    """
    gain = params["gain"]
    y, rstd = ops.rms_norm(x, gain, eps)

    def backward(dy):
        dx, dgain = ops.rms_norm_backward(dy, x, gain, rstd)
        return dx, {"gain": dgain}

    return y, backward


def normalise(ops, params, x, settings):
    """The normalisation that a layer has: ``layer_norm`` or ``rms_norm``."""
    norm = layer_norm if settings.norm_type == "layer_norm" else rms_norm
    return norm(ops, params, x, settings.norm_eps)
