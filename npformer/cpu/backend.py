"""The CPU backend: which arrays its kernels take, and how other arrays are converted for them."""

import numpy as np

from npformer.reference import Ops

# The bits of ``flags.num``. Numba compiles a kernel again for arrays that differ in one of them.
C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400


def suited(x, as_it_lies):
    """The function that converts an array to a layout the kernels take, or None if it has one.

    Kernels take NumPy's own arrays in C order; those that take an argument as it lies also read
    views of it, such as some of its columns.
    """
    if not _has_layout(x, as_it_lies):
        return _copied
    return None if x.flags.num & WRITEABLE else _as_if_writeable


def _has_layout(x, as_it_lies):
    """Whether the kernels can read the numbers where they are."""
    flags = x.flags.num
    if type(x) is not np.ndarray or not flags & ALIGNED:
        return False
    if as_it_lies:  # a kernel counts the steps of an axis in numbers, not in bytes
        return all(step % x.itemsize == 0 for step in x.strides)
    return bool(flags & C_CONTIGUOUS)


def _copied(x):
    return np.array(x, order="C", copy=True, subok=False)


def _as_if_writeable(x):
    """A writeable array on the same memory: for read-only ones numba would compile again.

    This is safe because a kernel writes only to arguments that its contract calls ``written``.
    """
    return np.asarray(_Alias(x))


def original(x):
    """The array that the caller passed, for a kernel that returns an argument."""
    return x.base.array if isinstance(x.base, _Alias) else x


class _Alias:
    """The memory of an array, as NumPy's array interface describes it, but writeable."""

    def __init__(self, x):
        self.array = x  # keeps the memory alive
        address, _ = x.__array_interface__["data"]
        writeable = {"data": (address, False), "strides": x.strides}
        self.__array_interface__ = x.__array_interface__ | writeable


# What ``suited`` depends on. An array on the GPU has no such number: the reference takes it.
LAYOUT = "getattr({x}.flags, 'num', None)"
ops = Ops("cpu", np.ndarray, dtypes="float32 float64", layout=LAYOUT, suited=suited)
kernel_of = ops.kernel_of
