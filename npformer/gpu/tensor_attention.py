"""Attention in tiles on tensor cores: which arrays can be read so, and in which tiles."""

from typing import NamedTuple

import cupy


class Tiles(NamedTuple):
    """What kernels of attention are compiled for and launched with."""

    file: str
    constants: dict
    rows: int  # that a block keeps
    block: tuple
    kept: int = 0  # bytes of shared memory for each array whose rows it keeps
    passing: int = 0  # and for those that come by


def on_tensor_cores(*arrays):
    """Whether the GPU has them for these numbers, and all rows begin and end at multiples of 16 bytes."""
    if arrays[0].dtype.itemsize != 2 or int(cupy.cuda.Device().compute_capability) < 80:
        return False
    places = [place for x in arrays for place in (x.data.ptr, *x.strides[:-1], x.shape[-1] * x.itemsize)]
    return all(place % 16 == 0 for place in places)


def tensor_tiles(width):
    """64 rows that stay, and two times two tiles that come by, smaller ones where heads are wide."""
    rows, tile, row_bytes = 64, 64 if width <= 64 else 32, 2 * (width + 8)
    constants = {"WIDTH": width, "ROWS": rows, "TILE": tile}
    return Tiles("tensor_attention", constants, rows, (128,), rows * row_bytes, 4 * tile * row_bytes)
