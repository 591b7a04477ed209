"""The linear map."""

import math

from npformer.reference.arrays import Array, namespace, narrow, quiet, transpose, widen
from npformer.reference.checks import check_shape
from npformer.reference.product import product


@quiet
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """y = x W + b.

    Parameters
    ----------
    x : (..., D_in)
    weight : (D_in, D_out)
    bias : (D_out,), optional

    Returns
    -------
    (..., D_out)

    Examples
    --------
    >>> import numpy as np
    >>> linear(np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 10.0]]), np.array([0.5, 0.5]))
    array([ 1.5, 20.5])
    """
    namespace(x=x, weight=weight, bias=bias)
    _check(x, weight, bias)
    y = rows(x) @ weight  # one large product, where a stack of small ones would be slower
    if bias is not None:
        y = y + bias
    return y.reshape(*x.shape[:-1], weight.shape[1])


@quiet
def linear_backward(dy: Array, x: Array, weight: Array, bias: Array | None = None) -> tuple:
    """dx = dy Wᵀ, dW = xᵀ dy, db = Σ dy, sums over every axis but the last; db is None without a bias."""
    namespace(dy=dy, x=x, weight=weight, bias=bias)
    _check(x, weight, bias)
    check_shape(dy=(dy, (*x.shape[:-1], weight.shape[1])))
    x_rows, dy_rows = rows(x), rows(dy)
    dx = (dy_rows @ transpose(weight)).reshape(x.shape)
    dweight = product(transpose(x_rows), dy_rows)
    dbias = None if bias is None else narrow(widen(dy_rows).sum(axis=0), dy)
    return dx, dweight, dbias


def rows(x: Array) -> Array:
    """(..., D) as (all the rest, D)."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _check(x, weight, bias):
    if weight.ndim != 2 or x.shape[-1:] != weight.shape[:1]:
        raise ValueError(f"x {x.shape}, weight {weight.shape}: expected x (..., D_in), weight (D_in, D_out)")
    if bias is not None:
        check_shape(bias=(bias, weight.shape[1:]))
