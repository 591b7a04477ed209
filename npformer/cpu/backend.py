"""The CPU backend: which arrays its kernels take, and how other arrays are converted for them."""

import numpy as np

from npformer.reference import Ops

# The bits of ``flags.num``. Numba compiles a kernel again for arrays that differ in one of them.
C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400


def suited(x, as_it_lies):
    """The function that converts an array to a layout the kernels take, or None if it has one."""
    flags = x.flags.num
    if type(x) is not np.ndarray or not flags & ALIGNED:
        return _copied
    if as_it_lies and any(step % x.itemsize for step in x.strides):
        return _copied
    if not as_it_lies and not flags & C_CONTIGUOUS:
        return _copied
    return None if flags & WRITEABLE else _as_if_writeable


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
    def __init__(self, x):
        self.array = x  # keeps the memory alive
        address, _ = x.__array_interface__["data"]
        writeable = {"data": (address, False), "strides": x.strides}
        self.__array_interface__ = x.__array_interface__ | writeable


# An array on the GPU has no such number, and the reference computes with it.
LAYOUT = "getattr({x}.flags, 'num', None)"
ops = Ops("cpu", np.ndarray, dtypes="float32 float64", layout=LAYOUT, suited=suited)
kernel_of = ops.kernel_of


def as_matrix(x):
    """The matrix if BLAS can read it, C-contiguous or Fortran-contiguous, else a copy."""
    return x if x.flags.c_contiguous or x.flags.f_contiguous else np.ascontiguousarray(x)
