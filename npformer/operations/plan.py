"""The plan of a dispatcher: how it computes an operation for arguments with given types, shapes, dtypes and layouts.

The arguments are checked once, when the plan is made. The dispatcher uses the plan again for all similar arguments.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import underflow_is_zero
from npformer.checks import warn
from npformer.operations.options import check_arrays
from npformer.operations.shapes import match, shape_of

DECIDING = ("float", "written")  # kinds of arrays whose dtypes decide that of the results
FLOAT32, IDS, MASK = np.dtype(np.float32), np.dtype(np.int64), np.dtype(bool)
_told: set[frozenset[np.dtype]] = set()  # pairs of dtypes that a warning has told of


class Plan(NamedTuple):
    """How to compute an operation for arguments with these types, shapes, dtypes and layouts."""

    kernel: Callable | None  # also what returns the results if all of them are empty
    why: str  # the reason why no kernel runs, or ""
    for_kernel: tuple  # (position, conversion) of the arguments to convert for the kernel
    for_function: tuple  # the same for the function of the reference
    of_results: tuple  # dtypes of the results, empty if no result has to be cast
    dtype: np.dtype | None  # in which the reference computes
    ids: tuple  # (position, name, upper bound) of each array of ids


def make_plan(record, kernel, given: Mapping[str, Any]) -> Plan:
    """Check arguments with a new signature, and decide whether a kernel or the reference computes the operation."""
    check_arrays(record.contract, given, record.parameters)
    sizes = match(record.contract, given)
    arrays = {name: given[name] for name in record.contract.arrays if given[name] is not None}
    kinds = {name: record.contract.arrays[name].kind for name in arrays}
    places = {name: place for place, name in enumerate(given)}

    dtype = _dtype_of_results(arrays, kinds)
    computed = dtype if dtype is None or (kernel and dtype.name in kernel.dtypes) else widened(dtype)
    why, for_kernel = _for_kernel(record.name, kernel, arrays, kinds, computed)
    conversions = {name: _for_function(x, kinds[name], widened(dtype)) for name, x in arrays.items()}
    for_function = {name: conversion for name, conversion in conversions.items() if conversion}
    floats = [x for name, x in arrays.items() if kinds[name] in ("float", "wide")]
    rounds = dtype != widened(dtype) or any(x.dtype != dtype for x in floats)
    results = [_dtype_of(x.kind, dtype) for x in record.contract.results]
    limits = {name: record.contract.arrays[name].below for name in arrays}
    unsigned = [name for name, x in arrays.items() if x.dtype.name == "uint64"]  # kernels have int64
    function = kernel.function if kernel and not why else None
    nothing = _nothing(record.contract, sizes, results, arrays)
    if nothing is not None:
        function, for_kernel = nothing, {}
    return Plan(
        function,
        why,
        tuple((places[name], conversion) for name, conversion in for_kernel.items()),
        tuple((places[name], conversion) for name, conversion in for_function.items()),
        tuple(results) if rounds else (),
        widened(dtype),
        tuple((places[name], name, sizes.get(x, 2**63)) for name, x in limits.items() if x or name in unsigned),
    )


def _dtype_of_results(arrays, kinds):
    """The dtype of the results by NumPy's promotion rules; None if there is no array of floats to determine it."""
    deciding = [x.dtype for name, x in arrays.items() if kinds[name] in DECIDING]
    if deciding:  # of a complex step the imaginary part must not be lost, whichever array makes the step
        deciding += [x.dtype for name, x in arrays.items() if kinds[name] == "wide" and x.dtype.kind == "c"]
    try:
        return np.result_type(*deciding).newbyteorder("=") if deciding else None
    except TypeError:  # float16 and bfloat16 have no common dtype
        given = ", ".join(f"{name} {x.dtype}" for name, x in arrays.items() if kinds[name] in DECIDING)
        raise TypeError(f"arrays of dtypes that have no common dtype: {given}; convert them to one first") from None


def _dtype_of(kind, dtype):
    """The dtype of an array of this kind, where floats have the given one."""
    return {"wide": widened(dtype), "ids": IDS, "mask": MASK}.get(kind, dtype)


def widened(dtype):
    """float32 for half precision, else the dtype itself."""
    return FLOAT32 if dtype is not None and dtype.itemsize == 2 else dtype


def _for_function(x, kind, dtype):
    """The conversion that an array needs before the reference can compute with it, or None."""
    if kind == "float" and x.dtype.kind == dtype.kind == "f" and x.dtype != dtype:
        return _cast_to(dtype)  # so that no step in between is rounded to a shorter one
    if kind in ("float", "wide") and x.dtype.itemsize == 2:
        return _cast_to(FLOAT32)
    return np.asarray if isinstance(x, np.generic | np.ndarray) and type(x) is not np.ndarray else None


def _for_kernel(operation, kernel, arrays, kinds, computed):
    """(the reason why no kernel takes these arrays, or "", the conversions of the arrays that need one, by name)."""
    if kernel is None:
        return "reference was called", {}
    if computed is not None and computed.name not in kernel.dtypes:
        return f"no kernel for {computed}", {}
    if given := [name for name in arrays if name in kernel.without]:
        return f"no kernel with {given[0]}", {}
    conversions = {}
    for name, x in arrays.items():
        wanted = _dtype_of(kinds[name], computed)
        if not isinstance(x, kernel.backend.array):
            return f"{name} is a {type(x).__name__}", {}
        conversion = kernel.backend.suited(x, name in kernel.as_it_lies)
        if x.size == 0:
            return f"{name} is empty", {}
        if kinds[name] in DECIDING and x.dtype.newbyteorder("=") != computed and x.dtype.itemsize != 2:
            return _told_of_dtypes(operation, arrays, kinds, computed), {}
        if kinds[name] == "written" and (conversion or x.dtype != wanted):
            return f"{name} would have to be copied, but is written in place", {}
        if x.dtype != wanted:
            conversions[name] = _cast_to(wanted)
        elif conversion:
            conversions[name] = conversion
    return "", conversions


def _told_of_dtypes(operation, arrays, kinds, computed):
    """Why no kernel takes arrays of several dtypes, with an array whose dtype most others do not have.

    A float64 array beside float32 parameters would else make everything after it slow without a word. The warning names
    the first such operation of a process: the array with the other dtype was made before it.
    """
    floats = {name: x for name, x in arrays.items() if kinds[name] in DECIDING and x.dtype.itemsize != 2}
    dtypes = {name: x.dtype.newbyteorder("=") for name, x in floats.items()}
    most = max(dtypes.values(), key=lambda dtype: (list(dtypes.values()).count(dtype), dtype != computed))
    name, other = next((name, dtype) for name, dtype in dtypes.items() if dtype != most)
    why = f"{name} has {other}, others {most}"
    if (pair := frozenset((other, most))) not in _told:
        _told.add(pair)
        warn(f"{why}: the slower reference computes {operation} in {computed}; try {name}.astype('{most}')")
    return why


def _nothing(contract, sizes, dtypes, arrays):
    """A function of the arguments that returns the results if all of them are empty, else None."""
    shapes = [None if result.broadcasts else shape_of(result.axes, sizes) for result in contract.results]
    missing = any(x.kind == "float" and x.name not in arrays for x in contract.arrays.values())  # its gradient is None
    varies = contract.more or any(result.on_request for result in contract.results)
    known = shapes and not varies and not missing and not any(x is None for x in (*shapes, *dtypes))
    if not known or any(0 not in shape for shape in shapes):
        return None
    like = next(iter(arrays.values()))
    empty = [np.zeros_like(like, shape=shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return lambda *values: tuple(x.copy() for x in empty) if len(empty) > 1 else empty[0].copy()


def _cast_to(dtype):
    def cast(x):
        x = np.asarray(x) if isinstance(x, np.generic | np.ndarray) else x  # from a scalar or a subclass to an array
        return x.astype(dtype, order="C")

    return cast


def converted(values, conversions):
    """The arguments, with the conversions applied."""
    values = list(values)
    with underflow_is_zero():
        for place, convert in conversions:
            values[place] = convert(values[place])
    return values


def rounded(result, dtypes):
    """The results, cast to these dtypes; additional results are cast to the first dtype."""
    with underflow_is_zero():
        if not isinstance(result, tuple):
            return _in_dtype(result, dtypes[0])
        return tuple(map(_in_dtype, result, [*dtypes, *dtypes[:1] * (len(result) - len(dtypes))]))


def _in_dtype(x, dtype):
    return x if x is None or dtype is None or x.dtype == dtype else x.astype(dtype)
