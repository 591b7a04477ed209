"""How kernels are compiled: the only place where numba is given flags."""

from pathlib import Path

import numba

# Sums may be reordered and a·b + c fused. Never nnan or ninf: with them isnan is False, and masks rest on inf.
FASTMATH = {"contract", "reassoc", "arcp", "nsz", "afn"}

# Kernels call functions of other files, so that a change in one of them makes all of numba's cache files stale.
SOURCES = [
    (path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(Path(__file__).parent.glob("*.py"))
]


def kernel(function, forceinline=False):
    """Compile for the processor at hand, without the GIL, cached on disk where a place can be written."""
    options = {"nogil": True, "fastmath": FASTMATH, "error_model": "numpy", "forceinline": forceinline}
    if numba.config.DISABLE_JIT:
        return function
    try:
        compiled = numba.njit(cache=True, **options)(function)
        compiled._cache._cache_file._source_stamp = SOURCES  # numba itself looks at the file of the function only
    except (RuntimeError, AttributeError):  # nowhere to write ("no locator available"), or numba has changed inside
        return numba.njit(**options)(function)
    return compiled


def inlined(function):
    """The same for a function that becomes a part of each kernel that calls it.

    Otherwise a process that compiles may link a kernel to another copy of it than one that finds the kernel on disk, a
    copy that may fuse a·b + c elsewhere: a training that is resumed would not repeat the first one's bits.
    """
    return kernel(function, forceinline=True)
