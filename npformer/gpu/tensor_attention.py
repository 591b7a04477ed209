"""Attention in tiles on tensor cores: the arrays for which it can be used, and the sizes of the tiles."""

from typing import NamedTuple

import cupy


class Tiles(NamedTuple):
    """The parameters with which attention kernels are compiled and launched."""

    file: str
    constants: dict
    rows: int  # the rows that a block keeps
    block: tuple
    kept: int = 0  # bytes of shared memory for each array whose rows a block keeps
    passing: int = 0  # bytes of shared memory for the tiles of the other arrays, through which it loops


def on_tensor_cores(*arrays):
    """Whether the GPU has tensor cores for this dtype, and all rows begin and end at multiples of 16 bytes."""
    if arrays[0].dtype.itemsize != 2 or int(cupy.cuda.Device().compute_capability) < 80:
        return False
    places = [place for x in arrays for place in (x.data.ptr, *x.strides[:-1], x.shape[-1] * x.itemsize)]
    return all(place % 16 == 0 for place in places)


def tensor_tiles(width):
    """A block keeps 64 rows. It loops over two arrays, with two tiles of each, which are smaller if heads are wide."""
    rows, tile, row_bytes = 64, 64 if width <= 64 else 32, 2 * (width + 8)
    constants = {"WIDTH": width, "ROWS": rows, "TILE": tile}
    return Tiles("tensor_attention", constants, rows, (128,), rows * row_bytes, 4 * tile * row_bytes)
