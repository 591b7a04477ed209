"""Which library an array belongs to, and where it is."""

import numpy as np

Array = np.ndarray  # in type hints: a NumPy array, or the CuPy array of the same shape


def library_of(array, name):
    """The module an array belongs to, NumPy or CuPy; anything else is a ``TypeError`` that names the argument."""
    if isinstance(array, (np.ndarray, np.generic)):
        return np
    if is_cupy(array):
        import cupy

        return cupy
    if array is None:
        raise TypeError(f"{name} is None, expected an array")
    if isinstance(array, tuple) and any(getattr(x, "ndim", 0) for x in array):
        raise TypeError(f"{name} is a tuple of {len(array)}, expected an array: pass one of its items")
    raise TypeError(f"{name} is a {type(array).__name__}, expected an array: try numpy.asarray({name})")


def is_cupy(array):
    """Whether it is a CuPy array, found out without importing CuPy."""
    return type(array).__module__.partition(".")[0] == "cupy"


def is_number_on_gpu(x):
    """Whether it is an array () there."""
    return is_cupy(x) and x.shape == ()


def is_recording(library):
    """Whether CuPy is recording what is to be done, and nothing can be looked at: who records has checked it."""
    return library is not np and library.cuda.get_current_stream().is_capturing()


def beside(x, neighbour):
    """``x`` where ``neighbour`` is: as it is, or its copy on the GPU."""
    return library_of(neighbour, "neighbour").asarray(x) if is_cupy(neighbour) else x


def on_host(x):
    """``x`` as a NumPy array, copied from the GPU if it is there."""
    return x.get() if is_cupy(x) else x


def transpose(x):
    """Swap the last two axes, as a view."""
    return x.swapaxes(-1, -2)


def number_of(x):
    """An integer () as one of Python's, but as it is if it is on the GPU, which would have to be waited for."""
    return x if is_cupy(x) else int(x)
