"""Normalisation with a learned gain."""

from typing import Any

from npformer.arrays import Array
from npformer.layers.types import Backward, Ops, Params


def layer_norm(ops: Ops, params: Params, x: Array) -> tuple[Array, Backward]:
    """Layer normalisation with a learned gain and bias; without a bias, root-mean-square normalisation.

    Parameters
    ----------
    ops : module
        The backend.
    params : {"gain": (D,), "bias": (D,)} or {"gain": (D,)}
    x : (..., D)

    Returns
    -------
    y : (..., D)
    backward : dy -> (dx, grads)

    Examples
    --------
    >>> import numpy as np
    >>> from npformer import layers, reference
    >>> y, backward = layers.layer_norm(reference, {"gain": np.ones(2), "bias": np.zeros(2)}, np.array([[1.0, 3.0]]))
    >>> dx, grads = backward(np.array([[1.0, 0.0]]))
    >>> y.round(3), grads["bias"]
    (array([[-1.,  1.]]), array([1., 0.]))
    """
    norm: Any = ops.layer_norm
    norm_backward: Any = ops.layer_norm_backward
    if "bias" not in params:
        norm, norm_backward = ops.rms_norm, ops.rms_norm_backward
    y, *saved = norm(x, **params)

    def backward(dy):
        dx, *grads = norm_backward(dy, x, params["gain"], *saved)
        return dx, dict(zip(("gain", "bias"), grads, strict=False))

    return y, backward
