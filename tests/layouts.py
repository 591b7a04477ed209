"""The same numbers in arrays that lie in memory in another way."""

import numpy as np


def contiguous(x):
    return x


def every_second(x):
    """In an array twice as wide, with NaN (or an id nobody has) in between."""
    wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), _filler(x), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def rows_apart(x):
    """With a gap of NaN after each row and around the whole."""
    wide = np.full((*(n + 2 for n in x.shape[:-1]), x.shape[-1] + 3), _filler(x), x.dtype)
    inside = (*(slice(1, -1) for _ in x.shape[:-1]), slice(1, -2))
    wide[inside] = x
    return wide[inside]


def fortran(x):
    return np.asfortranarray(x)


def backwards(x):
    """With all strides negative."""
    return np.flip(np.flip(x).copy())


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def byte_swapped(x):
    """As files from other machines have it."""
    return x.astype(x.dtype.newbyteorder("S"))


def unaligned(x):
    """Beginning at an odd address, as in packed records."""
    memory = np.empty(x.nbytes + 1, np.uint8)[1:]
    apart = memory.view(x.dtype).reshape(x.shape)
    apart[...] = x
    return apart


def in_records(x):
    """Each number beside a single byte, so that strides are odd."""
    records = np.zeros(x.shape, [("x", x.dtype), ("y", np.uint8)])
    records["x"] = x
    return records["x"]


def _filler(x):
    return {"f": np.nan, "b": True, "i": 10**6}[x.dtype.kind]
