"""What every operation needs to know about its arrays: which library, which width, which axis last."""

import numpy as np

Array = np.ndarray  # in type hints: a NumPy array, or the CuPy array of the same shape

# What is masked may hold NaN or inf, and computing on it before it is thrown away must not warn.
# Used as a decorator.
quiet = np.errstate(invalid="ignore")


def namespace(**arrays):
    """NumPy or CuPy, whichever the named arrays belong to; they hold floats or complex numbers.

    Raises ``TypeError`` naming the argument if one is not an array or holds something else, or if NumPy and CuPy
    arrays are mixed. Arguments that are ``None`` are passed over.
    """
    libraries = {name: library_of(array, name) for name, array in arrays.items() if array is not None}
    for name in libraries:
        if arrays[name].dtype.kind not in "fc" and arrays[name].dtype.name != "bfloat16":  # which is ml_dtypes' own
            raise TypeError(
                f"{name} has dtype {arrays[name].dtype}, expected a float dtype: try {name}.astype('float32')"
            )
    if len(set(libraries.values())) > 1:
        given = ", ".join(f"{name} {library.__name__}" for name, library in libraries.items())
        raise TypeError(f"arrays of different libraries: {given}; move them to one first")
    return next(iter(libraries.values()))


def library_of(array, name):
    """The module an array belongs to, NumPy or CuPy; anything else is a ``TypeError`` that names the argument."""
    if isinstance(array, (np.ndarray, np.generic)):
        return np
    if is_cupy(array):
        import cupy

        return cupy
    raise TypeError(f"{name} is a {type(array).__name__}, expected an array: try numpy.asarray({name})")


def is_cupy(array):
    """Whether it is a CuPy array, found out without importing CuPy."""
    return type(array).__module__.partition(".")[0] == "cupy"


def is_recording(library):
    """Whether CuPy is recording what is to be done, and nothing can be looked at: who records has checked it."""
    return library is not np and library.cuda.get_current_stream().is_capturing()


def beside(x, neighbour):
    """``x`` where ``neighbour`` is: as it is, or its copy on the GPU."""
    return library_of(neighbour, "neighbour").asarray(x) if is_cupy(neighbour) else x


def on_host(x):
    """``x`` as a NumPy array, copied from the GPU if it is there."""
    return x.get() if is_cupy(x) else x


def widen(x):
    """``x``, or its float32 copy if it has half precision: sums need more than 11 bits.

    One wide factor makes a product wide, so it is enough to widen one of them.
    """
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def narrow(y, x):
    """``y``, rounded to half precision again if that is what ``x`` has."""
    return y.astype(x.dtype) if x.dtype.itemsize == 2 else y


def transpose(x):
    """Swap the last two axes, as a view."""
    return x.swapaxes(-1, -2)
