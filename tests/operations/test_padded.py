"""Products of arrays with room for whole tiles, inside kernels."""

import numpy as np
import pytest
from results import FLOATS

from npformer.cpu.jit import kernel
from npformer.cpu.padded import TILE_ROWS, multiply_columns, multiply_padded, with_room
from npformer.runtime.memory import LINE

RNG = np.random.default_rng(0)


@kernel
def by_rows(a, b, out, sizes, scale, add):
    multiply_padded(a, b, out, sizes, scale, add)


@kernel
def by_columns(a, b, out, sizes, scale, add):
    multiply_columns(a, b, out, sizes, scale, add)


def filled(x, dtype):
    """These numbers, with NaN in the room beside them."""
    [whole] = with_room([x.shape], np.dtype(dtype))
    whole[:] = np.nan
    whole[: x.shape[0], : x.shape[1]] = x
    return whole


@pytest.mark.parametrize("multiply", [by_rows, by_columns])
@FLOATS
@pytest.mark.parametrize("m", [1, TILE_ROWS - 1, TILE_ROWS, TILE_ROWS + 1, 16, 24])
def test_the_product_of_arrays_with_room(m, dtype, multiply):
    scale = np.dtype(dtype).type(0.5)
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    for depth in (1, 3, 4, 17):
        for n in (1, 7, 8, 16, 17, 33):
            a = RNG.standard_normal((m, depth))
            b = RNG.standard_normal((depth, n))
            before = RNG.standard_normal((m, n))
            left = filled(a.T if multiply is by_columns else a, dtype)
            right = filled(b, dtype)
            out = filled(before, dtype)
            product = 0.5 * a @ b
            for add, expected in ((True, before + product), (False, product)):
                multiply(left, right, out, (m, n, depth), scale, add)
                np.testing.assert_allclose(out[:m, :n], expected, rtol=tolerance, atol=tolerance)


@FLOATS
def test_arrays_with_room_begin_with_a_line_and_do_not_overlap(dtype):
    shapes = [(1, 1), (2, 5, 16), (TILE_ROWS + 1, 33), (3, 0)]
    arrays = with_room(shapes, np.dtype(dtype))
    for shape, x in zip(shapes, arrays, strict=True):
        assert x.ctypes.data % LINE == 0
        assert x.shape[-1] * x.itemsize // LINE % 2 == 1
        assert x.shape[-2] % TILE_ROWS == 0
        assert all(size >= wanted for size, wanted in zip(x.shape, shape, strict=True))
    assert not any(np.shares_memory(x, y) for i, x in enumerate(arrays) for y in arrays[:i])


def test_arrays_with_room_are_zeros_wherever_memory_was_used_before():
    """Subnormal numbers in the room would be multiplied, slowly."""
    shapes = [(2, 20, 32), (96, 256)]
    for x in with_room(shapes, np.dtype("float32")):
        x[:] = 1e-40
    del x  # the memory of both is free now, and taken again
    assert not any(x.any() for x in with_room(shapes, np.dtype("float32")))
