"""How kernels are compiled: the only place where numba is given flags."""

from pathlib import Path

import numba

# Sums may be reordered and a·b + c fused. Never nnan or ninf: with them isnan is False, and masks rest on inf.
# With these flags infinities are as in IEEE 754 (sqrt(inf), x / inf, x / 0, sums and products), with two exceptions:
# in float32 1 / sqrt(x) is an estimate that Newton's method improves, which is NaN if x is 0 or inf, and may be wrong
# below 1e-38 (sqrt(x) alone, or with something added to it, is exact); and what a whole loop divides by is replaced by
# its reciprocal, which is inf for divisors below 3e-39. And beware of differences of large numbers: (x - a) - b may
# become x - (a + b); and x·a - b, in which x·a is not rounded, is not 0 where b is x·a, rounded. To store x - a, or
# x·a, in an array in a loop of its own prevents both.
FASTMATH = {"contract", "reassoc", "arcp", "nsz", "afn"}

# Kernels call functions of other files, so that a change in one of them makes all of numba's cache files stale.
SOURCES = [
    (path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(Path(__file__).parent.glob("*.py"))
]


def kernel(function, forceinline=False, fastmath=FASTMATH):
    """Compile for the processor at hand, without the GIL, cached on disk where a place can be written."""
    options = {"nogil": True, "fastmath": fastmath, "error_model": "numpy", "forceinline": forceinline}
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


def exact(function):
    """``inlined``, without the flags: what is written is what is computed."""
    return kernel(function, forceinline=True, fastmath=False)
