"""What every operation needs to know about its arrays: which library, which width, which axis last."""

import numpy as np

Array = np.ndarray  # in type hints: a NumPy array, or the CuPy array of the same shape

# What is masked may hold NaN or inf, and computing on it before it is thrown away must not warn.
# Used as a decorator.
quiet = np.errstate(invalid="ignore")


def namespace(**arrays):
    """NumPy or CuPy, whichever the named arrays belong to.

    Raises ``TypeError`` naming the argument if one is not an array of floats (or complex numbers), or
    if NumPy and CuPy arrays are mixed. Arguments that are ``None`` are passed over.
    """
    libraries = {}
    for name, array in arrays.items():
        if array is None:
            continue
        libraries[name] = array_library(array, name)
        if array.dtype.kind not in "fc" and array.dtype.name != "bfloat16":
            raise TypeError(f"{name} has dtype {array.dtype}, expected a float dtype: try {name}.astype('float32')")
    if len(set(libraries.values())) > 1:
        raise TypeError(f"arrays live in different libraries: {libraries}; move them to one first")
    return _import(next(iter(libraries.values())))


def namespace_of_ids(ids, name):
    """NumPy or CuPy, whichever an integer or boolean array belongs to."""
    return _import(array_library(ids, name))


def array_library(array, name):
    """``"numpy"`` or ``"cupy"``; anything else is a ``TypeError`` that names the argument."""
    library = type(array).__module__.partition(".")[0]
    if isinstance(array, (np.ndarray, np.generic)):
        return "numpy"
    if library == "cupy":
        return "cupy"
    raise TypeError(f"{name} is a {type(array).__name__}, expected an array: try numpy.asarray({name})")


def _import(library):
    if library == "numpy":
        return np
    import cupy

    return cupy


def widen(x):
    """``x``, or its float32 copy if it has half precision: sums need more than 11 bits."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def transpose(x):
    """Swap the last two axes, as a view."""
    return x.swapaxes(-1, -2)
