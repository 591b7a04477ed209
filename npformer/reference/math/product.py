"""The matrix product of attention, in which what is masked never matters."""

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import operation


@operation("a: ... n m, b: ... m p -> out: ... n p", flops="2*N*n*m*p")
def product(a: Array, b: Array) -> Array:
    """Matrix product in which an exact 0 times NaN or inf is 0.

    A masked key has attention weight 0, but ``0 * NaN`` is NaN in floating-point arithmetic: a
    single NaN in the value of a masked key would make every output NaN. In this product it affects
    only the outputs that give this key a weight other than 0.

    An output that such an entry affects is NaN, also where the ordinary product is infinite. A sum
    of finite numbers that overflows is infinite in both.

    >>> product(np.array([[0.0, 2.0]]), np.array([[np.nan], [3.0]]))
    array([[6.]])
    >>> product(np.array([[1.0]]), np.array([[np.inf]]))
    array([[nan]])
    """
    out = a @ b
    if np.isfinite(out).all():
        return out
    finite_a = np.isfinite(a)
    finite_b = np.isfinite(b)
    # Of booleans: whether the sum of an entry has a term that is not finite, other than 0 · NaN.
    tainted = (~finite_a @ (b != 0)) | ((a != 0) @ ~finite_b)
    finite = np.where(finite_a, a, 0) @ np.where(finite_b, b, 0)
    return np.where(tainted, np.nan, finite)
