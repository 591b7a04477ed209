"""Matrix products inside kernels."""

import numba
import numpy as np
import pytest
from results import FLOATS

from npformer.cpu.blas import BLAS, by_hand, multiply
from npformer.cpu.jit import kernel

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="NumPy multiplies")
RNG = np.random.default_rng(0)


@kernel
def multiplied(blas, a, b, out, add):
    multiply(blas, a, b, out, add)


@pytest.mark.parametrize("where", ["BLAS", "by hand"])
@pytest.mark.parametrize("transposed", ["", "a", "b"])
@FLOATS
@pytest.mark.parametrize(("m", "k", "n"), [(3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1)])
def test_the_product_by_blas_and_where_numpy_has_none(m, k, n, dtype, transposed, where):
    a = RNG.standard_normal((m, k)).astype(dtype)
    b = RNG.standard_normal((k, n)).astype(dtype)
    expected = a @ b
    a = np.ascontiguousarray(a.T).T if transposed == "a" else a
    b = np.ascontiguousarray(b.T).T if transposed == "b" else b
    blas = (
        BLAS[np.dtype(dtype)]
        if where == "BLAS"
        else (by_hand(numba.from_dtype(np.dtype(dtype))).address, True)
    )
    whole = np.full((m, n + 2), np.nan, dtype)
    out = whole[:, 1:-1]  # rows apart
    multiplied(blas, a, b, out, False)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    multiplied(blas, a, b, out, True)
    np.testing.assert_allclose(out, 2 * expected, rtol=1e-5, atol=1e-6)
    assert np.isnan(whole[:, [0, -1]]).all()
