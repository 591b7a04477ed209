"""How many threads matrix products use."""

import ctypes
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np


@contextmanager
def blas_threads(n):
    """Inside, NumPy's matrix products use ``n`` threads; afterwards as many as before.

    Small products gain nothing from a second thread, and lose much when another program wants the cores: the
    threads wait for each other at every product. (Measured: the quick copy preset takes 15 s with one thread or
    two on two idle cores; beside two other busy processes 52 s with one, more than 8 minutes with two.)

    Works with the OpenBLAS that NumPy's wheels bring; with another library nothing changes.

    Parameters
    ----------
    n : int or None
        None leaves everything as it is.

    Examples
    --------
    >>> with blas_threads(1):
    ...     product = np.ones((3, 3)) @ np.ones((3, 3))
    """
    if n is not None and n < 1:
        raise ValueError(f"n={n}, expected at least 1 thread, or None")
    library = _openblas() if n is not None else None
    if library is None:
        yield
        return
    get, set_ = library
    before = get()
    set_(n)
    try:
        yield
    finally:
        set_(before)


@cache
def _openblas():
    """(get, set) of the number of threads, or None where NumPy has brought no OpenBLAS."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            library = ctypes.CDLL(str(path))
            for prefix, suffix in (("scipy_", "64_"), ("", "64_"), ("scipy_", ""), ("", "")):
                get = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
                if get is not None:
                    return get, getattr(library, f"{prefix}openblas_set_num_threads{suffix}")
    return None
