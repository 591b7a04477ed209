"""From a kernel in one of the .cu files here to its run on the GPU."""

import re
from functools import cache
from pathlib import Path

import cupy
import numpy as np

FOLDER = Path(__file__).parent
MACROS = {"float32": "FLOAT32", "float64": "FLOAT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16"}
THREADS = 256  # of a block
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def launch(file, name, dtype, grid, block, *args, shared=0, **constants):
    """Run the kernel ``name`` of ``file``.cu, compiled for arrays of ``dtype``.

    Parameters
    ----------
    file, name : str
    dtype : dtype
    grid, block : tuples of int
        How many blocks, and of how many threads each.
    args
        CuPy arrays, None for no array, Python's integers and flags for ``Index`` and ``bool``, and NumPy scalars of
        the other types that a kernel declares.
    shared : int
        Bytes of shared memory of a block, besides those of which the compiler knows.
    constants
        Of the names that the file says.
    """
    kernel = _kernel(file, name, dtype, tuple(constants.items()))
    if shared and shared > kernel.max_dynamic_shared_size_bytes:
        kernel.max_dynamic_shared_size_bytes = shared
    kernel(grid, block, args, shared_mem=shared)


def for_each_element(file, name, dtype, size, *args):
    """Run a kernel with a thread for each of ``size`` elements."""
    launch(file, name, dtype, (-(-size // THREADS),), (THREADS,), *args)


def for_each_row(file, name, dtype, n_rows, *args):
    """Run a kernel with a block of threads for each row."""
    launch(file, name, dtype, (n_rows,), (THREADS,), *args)


def macros(dtype, constants):
    """What a compiler is told besides the source."""
    return (f"-D{MACROS[dtype.name]}", *(f"-D{name}={value}" for name, value in constants))


@cache  # as CuPy makes a new one each time it is asked
def _kernel(file, name, dtype, constants):
    return _module(file, dtype, constants).get_function(name)


@cache
def _module(file, dtype, constants):
    """The kernels of a file, compiled when they are first asked for; CuPy keeps them on the disk."""
    return cupy.RawModule(code=_source(f"{file}.cu", set()), options=("-std=c++17", *macros(dtype, constants)))


def _source(name, included):
    """A file with those in it that it includes: CuPy would not notice that one of them is another."""
    included.add(name)

    def text_of(include):
        return "" if include[1] in included else _source(include[1], included)

    return re.sub(r'#include "(.+)"', text_of, (FOLDER / name).read_text()).replace("#pragma once", "")


def real(dtype):
    """The type in which a kernel computes on arrays of this dtype."""
    return FLOAT64 if dtype.itemsize == 8 else FLOAT32
