"""Random arguments of operations, drawn from contracts or with what an operation needs."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from npformer.operations.shapes import shape_of

# Letters that occur together mostly have different primes as sizes, so that mistaking one axis for
# another is noticed.
SIZES = {
    "...": (2, 3),
    "B": 2,
    "H": 3,
    "G": 3,
    "T": 5,
    "S": 7,
    "K": 11,
    "Kv": 13,
    "Kq": 11,
    "Kk": 13,
    "D": 17,
    "F": 19,
    "E": 19,
    "V": 23,
    "W": 3,
    "A": 17,
    "P": 29,
    "R": 31,
    "n": 37,
    "m": 5,
    "p": 7,
}


class Drawn(NamedTuple):
    """An argument that is not drawn from the contract, but by ``draw(rng, sizes)``; with axes, " (T
    S)", in a label.
    """

    draw: Callable
    axes: str = ""


def draw(argument, sizes, rng):
    """A random array for an argument or result of a contract."""
    shape = shape_of(argument.axes, sizes)
    if argument.kind == "ids":
        low, high = (0, sizes[argument.below]) if argument.below else (-99, 100)
        return rng.integers(low, high, shape)
    x = rng.standard_normal(shape)
    return x > -0.3 if argument.kind == "mask" else x


def cast(value, dtype):
    """A value in which all floating-point arrays are cast to a dtype."""
    if isinstance(value, dict):
        return {name: cast(x, dtype) for name, x in value.items()}
    if isinstance(value, tuple):
        return tuple(cast(x, dtype) for x in value)
    is_float = isinstance(value, np.ndarray) and value.dtype.kind in "fc"
    return value.astype(dtype) if is_float else value


def mask(axes, above=0.0):
    """A mask with these axes. If T is one of them, the second query may attend to nothing."""

    def draw(rng, sizes):
        keep_mask = rng.standard_normal(shape_of(axes.split(), sizes)) > above
        if axes.endswith(("T S", "T T", "T 1")):
            keep_mask[..., 1, :] = False
        return keep_mask

    return Drawn(draw, f" ({axes})")


def bias(axes):
    """A bias on the scores with these axes."""

    def draw(rng, sizes):
        return rng.standard_normal(shape_of(axes.split(), sizes))

    return Drawn(draw, f" ({axes})")


def words(axes):
    """Ids with these axes: the last two of a row are padding (0), and the second is the same as the
    first.
    """

    def draw(rng, sizes):
        ids = rng.integers(1, sizes["V"], shape_of(axes.split(), sizes))
        ids[..., -2:] = 0
        ids[..., 1] = ids[..., 0]
        return ids

    return Drawn(draw)


def params(axes):
    """The parameters of a score, which have these axes."""

    def draw(rng, sizes):
        return tuple(0.3 * rng.standard_normal(shape_of(x.split(), sizes)) for x in axes)

    return Drawn(draw)


@Drawn
def away_from_zero(rng, sizes):
    """Numbers that are not near 0, where relu has no derivative."""
    x = rng.standard_normal(sizes["..."])
    return x + 0.01 * np.where(x < 0, -1, 1)


@Drawn
def mask_of_rows(rng, sizes):
    """A mask of rows, which has 1 as its last size."""
    return rng.standard_normal((*sizes["..."][:-1], 1)) > -0.3


@Drawn
def positions(rng, sizes):
    """The same positions for all rows."""
    return np.arange(sizes["T"])


@Drawn
def mean_of_squares(rng, sizes):
    """The second moment of Adam, which is above 0."""
    return 0.1 + rng.random(sizes["n"])
