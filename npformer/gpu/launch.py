"""From a kernel in one of the .cu files here to its run on the GPU."""

from functools import cache
from pathlib import Path

import cupy
import numpy as np

FOLDER = Path(__file__).parent
MACROS = {"float32": "FLOAT32", "float64": "FLOAT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16"}
THREADS = 256  # of a block
NO_ARRAY = np.uintp(0)  # the null pointer


def launch(file, name, dtype, grid, block, *args):
    """Run the kernel ``name`` of ``file``.cu, compiled for arrays of ``dtype``.

    Parameters
    ----------
    file, name : str
    dtype : dtype
    grid, block : tuples of int
        How many blocks, and of how many threads each.
    args
        CuPy arrays, None for no array, and NumPy scalars of the types that the kernel declares.
    """
    launch_with(file, name, dtype, grid, block, args)


def launch_with(file, name, dtype, grid, block, args, **constants):
    """The same, compiled with constants of the names that the file says."""
    args = tuple(NO_ARRAY if x is None else x for x in args)
    kernel_of(file, name, dtype, **constants)(grid, block, args)


def for_each_element(file, name, dtype, size, *args):
    """Run a kernel with a thread for each of ``size`` elements."""
    if size:
        launch(file, name, dtype, (-(-size // THREADS),), (THREADS,), *args)


def for_each_row(file, name, dtype, n_rows, *args):
    """Run a kernel with a block of threads for each row."""
    if n_rows:
        launch(file, name, dtype, (n_rows,), (THREADS,), *args)


def compile_options(dtype, **constants):
    """What a compiler is told besides the source."""
    return (f"-I{FOLDER}", f"-D{MACROS[dtype.name]}", *(f"-D{name}={value}" for name, value in constants.items()))


@cache
def kernel_of(file, name, dtype, **constants):
    """A kernel, compiled when it is first asked for (CuPy keeps it on the disk)."""
    return _module(file, dtype, tuple(constants.items())).get_function(name)


@cache
def _module(file, dtype, constants):
    code = (FOLDER / f"{file}.cu").read_text()
    return cupy.RawModule(code=code, options=("-std=c++17", *compile_options(dtype, **dict(constants))))


def real(dtype):
    """The type in which a kernel computes on arrays of this dtype."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)
