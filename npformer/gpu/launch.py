"""Compile and launch the kernels in the .cu files of the folder ``cuda``.

A kernel is called with the arguments that its source declares, whose names a comment above the call
repeats: CuPy arrays, None for no array, Python integers and bools for ``Index`` and ``bool``, and
NumPy scalars for the other types.
"""

import re
from functools import cache
from pathlib import Path

import cupy
import numpy as np

FOLDER = Path(__file__).parent / "cuda"
MACROS = {"float32": "FLOAT32", "float64": "FLOAT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16"}
THREADS = 256  # per block
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)


def cuda_kernel(file, name, dtype, grid, block, shared=0, **constants):
    """The function that launches the kernel ``name`` of ``file``.cu, compiled for ``dtype``.

    ``grid`` and ``block`` are tuples: the numbers of blocks, and of threads per block. ``shared``
    is in bytes per block. ``constants`` are macros that the comment in the file lists.
    """
    kernel = _kernel(file, name, dtype, tuple(constants.items()))
    if shared and shared > kernel.max_dynamic_shared_size_bytes:
        kernel.max_dynamic_shared_size_bytes = shared

    def launch(*args):
        kernel(grid, block, args, shared_mem=shared)

    return launch


def element_kernel(file, name, dtype, size):
    """A kernel with one thread for each of ``size`` elements."""
    return cuda_kernel(file, name, dtype, (-(-size // THREADS),), (THREADS,))


def row_kernel(file, name, dtype, n_rows):
    """A kernel with one block of threads for each row."""
    return cuda_kernel(file, name, dtype, (n_rows,), (THREADS,))


def on_gpu(number, dtype=FLOAT64):
    """A number as an array of shape (), without a copy from the host, which a recording refuses."""
    if isinstance(number, cupy.ndarray):
        return number.astype(dtype, copy=False)
    return cupy.full((), number, dtype)


def with_steps(x):
    """An array and its steps along the first three axes, in elements: what a kernel declares for an
    array in any layout.
    """
    return x, *(stride // x.itemsize for stride in x.strides[:3])


def macros(dtype, constants):
    """The -D options of the compiler."""
    return (f"-D{MACROS[dtype.name]}", *(f"-D{name}={value}" for name, value in constants))


@cache  # CuPy would make a new object at each call
def _kernel(file, name, dtype, constants):
    return _module(file, dtype, constants).get_function(name)


@cache
def _module(file, dtype, constants):
    """The kernels of a file, compiled at the first use; CuPy caches them on disk."""
    return cupy.RawModule(
        code=_source(f"{file}.cu", set()), options=("-std=c++17", *macros(dtype, constants))
    )


def _source(name, included):
    """The text of a file with its includes inserted: CuPy's cache would not notice a change in an
    included file.
    """
    included.add(name)

    def text_of(include):
        return "" if include[1] in included else _source(include[1], included)

    source = re.sub(r'#include "(.+)"', text_of, (FOLDER / name).read_text())
    return source.replace("#pragma once", "")


def real(dtype):
    """The type in which a kernel computes on arrays of this dtype."""
    return FLOAT64 if dtype.itemsize == 8 else FLOAT32
