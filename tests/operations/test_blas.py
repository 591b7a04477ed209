"""Matrix products inside kernels."""

import numba
import numpy as np
import pytest
from layouts import fortran
from results import FLOATS

from npformer.cpu.blas import BLAS, by_hand, multiply
from npformer.cpu.jit import kernel

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="NumPy multiplies")
RNG = np.random.default_rng(0)


@kernel
def multiplied(blas, a, b, out, add):
    multiply(blas, a, b, out, add)


def product_of(where, dtype):
    """BLAS, or what takes its place where NumPy has none."""
    if where == "BLAS":
        return BLAS[np.dtype(dtype)]
    return by_hand(numba.from_dtype(np.dtype(dtype))).address, True


@pytest.mark.parametrize("where", ["BLAS", "by hand"])
@pytest.mark.parametrize("transposed", ["", "a", "b"])
@FLOATS
def test_the_product_by_blas_and_where_numpy_has_none(dtype, transposed, where):
    for m, k, n in ((3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1)):
        a = RNG.standard_normal((m, k)).astype(dtype)
        b = RNG.standard_normal((k, n)).astype(dtype)
        expected = a @ b
        if transposed == "a":
            a = fortran(a)
        elif transposed == "b":
            b = fortran(b)
        room = np.full((m, n + 2), np.nan, dtype)
        out = room[:, 1:-1]  # rows apart
        for add, times in ((False, 1), (True, 2)):
            multiplied(product_of(where, dtype), a, b, out, add)
            np.testing.assert_allclose(out, times * expected, rtol=1e-5, atol=1e-6)
        assert np.isnan(room[:, [0, -1]]).all()
