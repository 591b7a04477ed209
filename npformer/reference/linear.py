"""The linear map."""

import math

from npformer.arrays import Array, transpose
from npformer.operation import backward_of, operation


@operation("x: ... D, weight: D F, bias: F -> y: ... F", flops="2*N*D*F")
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """y = x W + b.

    Parameters
    ----------
    x : (..., D)
    weight : (D, F)
    bias : (F,), optional

    Returns
    -------
    (..., F)

    Examples
    --------
    >>> import numpy as np
    >>> linear(np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 10.0]]), np.array([0.5, 0.5]))
    array([ 1.5, 20.5])
    """
    y = rows(x) @ weight  # one large product is faster than a batch of small ones
    if bias is not None:
        y = y + bias
    return y.reshape(*x.shape[:-1], weight.shape[1])


@backward_of(linear, flops="4*N*D*F")
def linear_backward(dy: Array, x: Array, weight: Array, bias: Array | None = None) -> tuple:
    """dx = dy Wᵀ, dW = xᵀ dy, db = Σ dy, summed over all leading axes; db is None without a bias.

    Examples
    --------
    >>> import numpy as np
    >>> x, weight = np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 10.0]])
    >>> dx, dweight, dbias = linear_backward(np.array([[1.0, 0.1]]), x, weight, np.zeros(2))
    >>> dx
    array([[1., 1.]])
    >>> dweight
    array([[1. , 0.1],
           [2. , 0.2]])
    >>> dbias
    array([1. , 0.1])
    """
    dy_rows = rows(dy)
    dx = (dy_rows @ transpose(weight)).reshape(x.shape)
    dweight = transpose(rows(x)) @ dy_rows
    dbias = None if bias is None else dy_rows.sum(axis=0)
    return dx, dweight, dbias


def rows(x: Array) -> Array:
    """Reshape (..., D) to (n, D): all leading axes become one."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
