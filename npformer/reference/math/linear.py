"""The linear map.

The last axis of x, of size D, becomes one of size F; all other axes are rows, which are mapped
alike. So the weight is (D, F), and its gradient is a sum over all rows.
"""

import math

from npformer.arrays import Array
from npformer.operations.formula import backward_of, operation


@operation("x: ... D, weight: D F, bias: F -> y: ... F", flops="2*N*D*F")
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """y = x W + b.

    >>> linear(np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 10.0]]), np.array([0.5, 0.5]))
    array([ 1.5, 20.5])
    """
    y = rows(x) @ weight  # one large product is faster than a batch of small ones
    if bias is not None:
        y = y + bias
    return y.reshape(*x.shape[:-1], weight.shape[1])


@backward_of(linear, flops="4*N*D*F")
def linear_backward(dy: Array, x: Array, weight: Array, bias: Array | None = None) -> tuple:
    """dx = dy Wᵀ, dW = xᵀ dy, db = Σ dy, summed over all leading axes.

    Parameters
    ----------
    bias
        That of the forward pass; its values do not matter, but without it there is no dbias.

    Returns
    -------
    dbias
        None unless ``bias`` is given: the sum takes time, and a map without a bias needs none.

    >>> x, weight = np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 10.0]])
    >>> dx, dweight, dbias = linear_backward(np.array([[1.0, 0.1]]), x, weight, np.zeros(2))
    >>> dx
    array([[1., 1.]])
    >>> dweight
    array([[1. , 0.1],
           [2. , 0.2]])
    >>> dbias
    array([1. , 0.1])
    >>> linear_backward(np.array([[1.0, 0.1]]), x, weight)[2] is None
    True
    """
    dy_rows = rows(dy)
    dx = (dy_rows @ weight.T).reshape(x.shape)
    dweight = rows(x).T @ dy_rows
    dbias = None if bias is None else sum_over_rows(dy)
    return dx, dweight, dbias


def sum_over_rows(x):
    """Add up all leading axes: (..., D) to (D,).

    NumPy adds the numbers of a contiguous row in pairs, and these in pairs, which rounds least.
    ``sum(axis=0)`` would add one row after the other: of a million float32 rows, it loses two
    digits more.
    """
    return rows(x).T.copy().sum(axis=1)


def rows(x):
    """Reshape (..., D) to (n, D): all leading axes become one."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
