"""What is done with arrays of NumPy and of CuPy alike: find the library and the device of an array,
move it, view it in another form, and compare arrays by a checksum.
"""

import zlib

import numpy as np

Array = np.ndarray  # in type hints: a NumPy array or a CuPy array


def library_of(array, name):
    """The module of an array, NumPy or CuPy; for anything else a ``TypeError`` that names the
    argument.
    """
    if type(array) is np.ndarray:
        return np
    if has_own_rules(type(array)):
        advice = f"numpy.asarray({name})"
        if hasattr(array, "filled"):
            advice = f"{name}.filled(value), for ids the padding's"
        problem = f"{name} is a {type(array).__name__}, whose own rules would be ignored"
        raise TypeError(f"{problem}: expected an array, try {advice}")
    if isinstance(array, (np.ndarray, np.generic)):
        return np
    if is_cupy(array):
        import cupy

        return cupy
    if array is None:
        raise TypeError(f"{name} is None, expected an array")
    if isinstance(array, tuple) and any(getattr(x, "ndim", 0) for x in array):
        expected = "an array: pass one of its items"
        raise TypeError(f"{name} is a tuple of {len(array)}, expected {expected}")
    expected = f"an array: try numpy.asarray({name})"
    raise TypeError(f"{name} is a {type(array).__name__}, expected {expected}")


def has_own_rules(cls):
    """Whether a subclass of NumPy's array computes otherwise, as masked arrays, matrices and
    quantities with units do.

    Operations would ignore these rules: a kernel reads what is masked, too. A ``numpy.memmap`` has
    none.
    """
    if cls is np.ndarray or not issubclass(cls, np.ndarray):
        return False
    rules = ("__mul__", "__array_ufunc__", "__array_function__")
    return any(getattr(cls, rule) is not getattr(np.ndarray, rule) for rule in rules)


def is_cupy(array):
    """Whether ``array`` is a CuPy array, without importing CuPy."""
    return type(array).__module__.partition(".")[0] == "cupy"


def is_recording(library):
    """Whether CuPy is recording operations: values cannot be checked then, and the caller has
    checked them.
    """
    return library is not np and library.cuda.get_current_stream().is_capturing()


def underflow_is_zero(**others):
    """A context, or a decorator, in which a number that is too small for its dtype becomes 0
    without an error.

    NumPy ignores an underflow unless a program has called ``np.seterr(all="raise")`` to find its
    own mistakes. What is computed here is none: the smallest weights, probabilities and gradients
    are so near to 0. ``others`` are further settings of ``np.errstate``.
    """
    return np.errstate(under="ignore", **others)


def beside(x, neighbour):
    """``x`` as an array on the GPU if ``neighbour`` is on the GPU, else ``x`` unchanged."""
    return library_of(neighbour, "neighbour").asarray(x) if is_cupy(neighbour) else x


def on_host(x, out=None):
    """``x`` as a NumPy array, copied from the GPU if necessary, into ``out`` if given."""
    return x.get(out=out) if is_cupy(x) else x


def kept(keep_mask, x):
    """``x``, with 0 where the mask is False, in its own dtype (CuPy's ``where`` makes float32 of
    bfloat16).
    """
    return np.where(keep_mask, x, 0).astype(x.dtype, copy=False)


def transpose(x):
    """Swap the last two axes, as a view."""
    return x.swapaxes(-1, -2)


def as_rows(x):
    """(..., D) as (n, D), of an array that is not empty; a view if it is contiguous."""
    return x.reshape(-1, x.shape[-1])


def number_of(x):
    """A 0-d integer array as a Python int; unchanged if it is on the GPU, as a conversion would
    wait for the GPU.
    """
    return x if is_cupy(x) else int(x)


def digest(values):
    """A checksum of NumPy arrays and texts: one number, the same for the same bytes in this order.

    It knows neither shapes nor dtypes. Anything else is a ``TypeError``, as values that it left out
    would pass for equal.

    >>> digest([np.arange(3), "a"]) == digest([np.arange(3), "a"]) != digest([np.arange(3), "b"])
    True
    >>> digest([[1.0, 2.0]])
    Traceback (most recent call last):
    TypeError: a digest of a list, expected NumPy arrays or texts
    """
    crc = 0
    for x in values:
        if isinstance(x, np.ndarray):
            crc = zlib.crc32(np.ascontiguousarray(x).data, crc)
        elif isinstance(x, str):
            crc = zlib.crc32(x.encode("utf-8", "surrogatepass"), crc)
        else:
            raise TypeError(f"a digest of a {type(x).__name__}, expected NumPy arrays or texts")
    return crc
