"""Checks of the arguments of operations: arrays must have the right kind, and options must be in their range.

An option is converted to the type of its hint, so that NumPy scalars are accepted like Python numbers and bools.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Literal, get_args, get_origin

import numpy as np

from npformer.arrays import is_number_on_gpu, is_recording, library_of
from npformer.checks import ABOVE_0, FRACTION, NOT_NEGATIVE, check_flag, check_int, check_key, check_number
from npformer.operations.contract import may_be_none

INT64 = np.dtype(np.int64)

# Options that have the same meaning in all operations: (predicate, what is expected).
AT_LEAST_1 = lambda x: x >= 1, "at least 1"
RANGES = {
    "beta1": FRACTION,
    "beta2": FRACTION,
    "consistency": NOT_NEGATIVE,
    "dilation": AT_LEAST_1,
    "dropout_rate": FRACTION,
    "eps": ABOVE_0,
    "k": AT_LEAST_1,
    "label_smoothing": (lambda x: 0 <= x <= 1, "0 <= label_smoothing <= 1"),
    "loss_scale": ABOVE_0,
    "n_heads": AT_LEAST_1,
    "n_tokens": AT_LEAST_1,
    "step": AT_LEAST_1,
}
WIDEST = np.dtype(np.complex128).itemsize  # bytes of a number
SMALLEST, LARGEST = -(2**63), 2**63 - 1  # range of the ints that a kernel takes


def check_of(parameter: inspect.Parameter):
    """A function that converts the value of an option to the type of its hint, or raises; None if there is no check.

    Examples
    --------
    >>> def scaled(x, *, eps: float = 0.1): ...
    >>> check_of(inspect.signature(scaled).parameters["eps"])(np.float32(0.5))
    0.5
    """
    name, hint = parameter.name, parameter.annotation
    hints = get_args(hint) if may_be_none(parameter) else (hint,)
    kind = hints[0]
    if name == "dropout_key":
        return _key
    if get_origin(kind) is Literal:
        return _choice(name, get_args(kind))
    if get_origin(kind) is tuple:
        return _sizes(name, len(get_args(kind)))
    if kind not in CONVERSIONS:
        return _instance(name, kind) if kind in (Callable, dict) or is_dataclass(kind) else None
    convert, (fits, expected) = CONVERSIONS[kind], RANGES.get(name, (lambda x: True, ""))
    optional, exact = may_be_none(parameter), kind

    def check(value):
        if value is None and optional:
            return None
        if type(value) is not exact:
            if is_number_on_gpu(value):
                return value  # a recorded operation reads the value when it is replayed
            value = convert(name, value)
        if exact is int and not SMALLEST <= value <= LARGEST:
            raise ValueError(f"{name}={value}, expected an int of 64 bits")
        if not fits(value):
            raise ValueError(f"{name}={value}, expected {expected.format(name=name)}")
        return value

    return check


CONVERSIONS = {bool: check_flag, int: check_int, float: check_number}


def _key(value):
    return None if value is None else check_key("dropout_key", value)


def _choice(name, choices):
    def check(value):
        if not isinstance(value, str):
            raise TypeError(f"{name} is a {type(value).__name__}, expected one of {sorted(choices)}")
        if value not in choices:
            raise ValueError(f"{name}={value!r}, expected one of {sorted(choices)}")
        return value

    return check


def _sizes(name, n):
    def check(value):
        if not isinstance(value, tuple):
            raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected a tuple of {n} ints")
        sizes = tuple(check_int(name, size) for size in value)
        if len(sizes) != n or min(sizes) < 0:
            raise ValueError(f"{name}={value}, expected {n} sizes of 0 or more")
        if max(math.prod(sizes), *sizes) > LARGEST // WIDEST:
            raise ValueError(f"{name}={value}, expected fewer entries: no array can have as many")
        return sizes

    return check


def _instance(name, kind):
    told = "a callable" if kind is Callable else "a dict" if kind is dict else f"{kind.__name__}(…)"

    def check(value):
        if not isinstance(value, kind):
            raise TypeError(f"{name} is a {type(value).__name__}, expected {told}")
        return value

    return check


def check_rate_and_key(rate, key):
    """Check that there is a key if the dropout rate is above 0."""
    if rate > 0 and key is None:
        raise ValueError(f"dropout_rate={rate} needs a dropout_key (an integer) to draw from, got dropout_key=None")


def check_arrays(contract, given, parameters):
    """Check that arrays have the kind that the contract states, and that all belong to the same library.

    Parameters
    ----------
    contract : Contract
    given : dict
        The arguments by name.
    parameters : mapping
        The ``inspect.Parameter`` of each argument by name.
    """
    libraries = {}
    for name, argument in contract.arrays.items():
        x = given.get(name)
        if x is None and may_be_none(parameters[name]):
            continue
        libraries[name] = library_of(x, name)
        check_kind(x, name, argument.kind)
    if len(set(libraries.values())) > 1:
        told = ", ".join(f"{name} {library.__name__}" for name, library in libraries.items())
        raise TypeError(f"arrays of different libraries: {told}; move them to one first")


def check_kind(x, name, kind):
    """Raise if the dtype of an array does not fit its kind in a contract, such as "mask" or "ids"."""
    if kind == "mask":
        if x.dtype.kind != "b":
            raise TypeError(
                f"{name} has dtype {x.dtype}, expected bool with True = may attend: a 1/0 mask becomes one with "
                "mask.astype(bool), an additive mask (0 / -inf) with npformer.from_additive(mask)"
            )
    elif kind == "ids":
        if x.dtype.kind not in "iu":
            raise TypeError(f"{name} has dtype {x.dtype}, expected integers: try {name}.astype('int64')")
    elif (x.dtype.kind not in "fc" or x.dtype.itemsize == 1) and x.dtype.name != "bfloat16":  # kind "V", of ml_dtypes
        advice = f": try {name}.astype('float32')" if x.dtype.kind in "biuf" else ""
        raise TypeError(f"{name} has dtype {x.dtype}, expected a float dtype{advice}")
    elif kind == "written" and isinstance(x, np.ndarray) and not x.flags.writeable:
        raise ValueError(f"{name} is read-only, expected an array that can be written: try {name}.copy()")


def check_ids(ids, size, name, ignore_id=None):
    """Check that token ids are integers with 0 <= id < ``size``, except entries equal to ``ignore_id``."""
    if (
        type(ids) is np.ndarray
        and ids.dtype is INT64
        and ids.size
        and np.maximum.reduce(ids.view(np.uint64), axis=None) < size
    ):
        return  # seen as unsigned, a negative id is a large one, so one comparison is enough
    library = library_of(ids, name)
    check_kind(ids, name, "ids")
    if ids.size == 0 or is_recording(library):
        return
    if ids.min() >= 0 and ids.max() < size:
        return
    wrong = (ids < 0) | (ids >= size)
    if ignore_id is not None:
        wrong &= ids != ignore_id
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(f"{name}{list(where)} is {int(ids[where])}, expected 0 <= id < {size}")
