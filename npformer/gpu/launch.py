"""From a kernel in one of the .cu files here to its run on the GPU."""

from functools import cache
from pathlib import Path

import cupy
import numpy as np

FOLDER = Path(__file__).parent
MACROS = {"float32": "FLOAT32", "float64": "FLOAT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16"}
THREADS = 256  # of a block
NO_ARRAY = np.uintp(0)  # the null pointer


def launch(file, name, dtype, grid, block, *args, **constants):
    """Run the kernel ``name`` of ``file``.cu, compiled for arrays of ``dtype``.

    Parameters
    ----------
    file, name : str
    dtype : dtype
    grid, block : tuples of int
        How many blocks, and of how many threads each.
    args
        CuPy arrays, None for no array, and NumPy scalars of the types that the kernel declares.
    constants
        Of the names that the file says.
    """
    args = tuple(NO_ARRAY if x is None else x for x in args)
    _module(file, dtype, tuple(constants.items())).get_function(name)(grid, block, args)


def for_each_element(file, name, dtype, size, *args):
    """Run a kernel with a thread for each of ``size`` elements."""
    if size:
        launch(file, name, dtype, (-(-size // THREADS),), (THREADS,), *args)


def for_each_row(file, name, dtype, n_rows, *args):
    """Run a kernel with a block of threads for each row."""
    if n_rows:
        launch(file, name, dtype, (n_rows,), (THREADS,), *args)


def macros(dtype, constants):
    """What a compiler is told besides the source."""
    return (f"-D{MACROS[dtype.name]}", *(f"-D{name}={value}" for name, value in constants))


@cache
def _module(file, dtype, constants):
    """The kernels of a file, compiled when they are first asked for; CuPy keeps them on the disk.

    The common part is put into the source, as CuPy would not notice that an included file is another.
    """
    common, code = ((FOLDER / name).read_text() for name in ("common.cuh", f"{file}.cu"))
    code = code.replace('#include "common.cuh"', common)
    return cupy.RawModule(code=code, options=("-std=c++17", *macros(dtype, constants)))


def real(dtype):
    """The type in which a kernel computes on arrays of this dtype."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)
