"""The same numbers in arrays with other memory layouts."""

import numpy as np


def contiguous(x):
    return x


def every_second(x):
    """Every second number of an array twice as wide, with NaN (or an invalid id) in between."""
    wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), _filler(x), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def rows_apart(x):
    """A part of a larger array, with NaN after each row and around the whole."""
    wide = np.full((*(n + 2 for n in x.shape[:-1]), x.shape[-1] + 3), _filler(x), x.dtype)
    inside = (*(slice(1, -1) for _ in x.shape[:-1]), slice(1, -2))
    wide[inside] = x
    return wide[inside]


def fortran(x):
    return np.asfortranarray(x)


def backwards(x):
    """An array in which all strides are negative."""
    return np.flip(np.flip(x).copy())


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def byte_swapped(x):
    """An array in the other byte order, as in files from other machines."""
    return x.astype(x.dtype.newbyteorder("S"))


def unaligned(x):
    """An array that begins at an odd address, as in packed records."""
    memory = np.empty(x.nbytes + 1, np.uint8)[1:]
    apart = memory.view(x.dtype).reshape(x.shape)
    apart[...] = x
    return apart


def _filler(x):
    return {"f": np.nan, "b": True, "i": 10**6}[x.dtype.kind]
