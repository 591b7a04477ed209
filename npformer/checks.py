"""Checks that raise errors for bad input; each message has the argument, what was given and what was expected.

Checks of numbers return them as Python's own: what is given may be a number of NumPy's, which overflows, or a fraction,
which cannot be saved.
"""

import inspect
import math
import numbers
import warnings
from functools import lru_cache

import numpy as np

from npformer.arrays import has_own_rules


def warn(message):
    """Issue a warning at the line of the caller's program that called npformer."""
    frame, level = inspect.currentframe(), 1
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] == "npformer":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def check_key(name, value):
    """An integer as an ``int``, or an object with its own ``derive`` method, as in a recorded step."""
    return value if type(value) is int or hasattr(value, "derive") else check_int(name, value)


def check_seed(name, value):
    """A seed as an ``int``: of 64 bits, like the keys that are derived from it."""
    return check_int(name, value, at_least=0, at_most=2**64 - 1)


def check_shape(**arrays):
    """Check that arrays have the expected shapes: ``check_shape(dy=(dy, x.shape), bias=(bias, (512,)))``."""
    for name, (array, shape) in arrays.items():
        if array.shape != tuple(shape):
            raise ValueError(f"{name} has shape {array.shape}, expected {tuple(shape)}")


def check_fields(settings, check, *names, **bounds):
    """Check fields of a dataclass, which may be frozen, and replace them by what ``check`` returns.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> settings = SimpleNamespace(d_ff=np.uint8(200))
    >>> check_fields(settings, check_int, "d_ff", at_least=1)
    >>> settings.d_ff * 2
    400
    """
    for name in names:
        object.__setattr__(settings, name, check(name, getattr(settings, name), **bounds))


def shown(value):
    """The text of a value in an error: not that of a whole model, or of a million digits."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an int of {value.bit_length()} bits"
    return f"{value!r:.80}"


def check_choice(name, value, choices):
    """Check that a value is one of several."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise ValueError(f"{name}={shown(value)}, expected {', '.join(others)} or {last}")


def check_flag(name, value):
    """True or False as a ``bool``, also 1 and 0."""
    if isinstance(value, (np.bool_, numbers.Integral)):
        return bool(value)
    raise TypeError(f"{name}={shown(value)} is a {type(value).__name__}, expected True or False")


def check_int(name, value, at_least=-math.inf, at_most=math.inf):
    """An integer from ``at_least`` to ``at_most`` as an ``int``, as those of NumPy overflow."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={shown(value)} is a {type(value).__name__}, expected an int")
    if value < at_least:
        raise ValueError(f"{name}={shown(value)}, expected at least {at_least}")
    if value > at_most:
        raise ValueError(f"{name}={shown(value)}, expected at most {at_most}")
    return int(value)


def check_number(name, value):
    """A real number, also as an array without axes, as a ``float``."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and not has_own_rules(type(value)):
        value = value.item()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={shown(value)} is a {type(value).__name__}, expected a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}={shown(value)}, expected a number in the range of a float") from None


# Ranges of numbers: (predicate, what is expected).
ABOVE_0 = lambda x: 0 < x < math.inf, "a finite number above 0"
NOT_NEGATIVE = lambda x: 0 <= x < math.inf, "a finite number of 0 or more"
FRACTION = lambda x: 0 <= x < 1, "0 <= {name} < 1"


def check_positive(name, value):
    """A finite number above 0 as a ``float``."""
    return _in_range(ABOVE_0, name, value)


def check_not_negative(name, value):
    """A finite number of 0 or more as a ``float``."""
    return _in_range(NOT_NEGATIVE, name, value)


def check_fraction(name, value):
    """A number in [0, 1) as a ``float``."""
    return _in_range(FRACTION, name, value)


def _in_range(wanted, name, value):
    number, (fits, expected) = check_number(name, value), wanted
    if not fits(number):
        raise ValueError(f"{name}={value}, expected {expected.format(name=name)}")
    return number


@lru_cache(maxsize=100)  # an operation checks the same eps in each call
def check_in_dtype(name, value, dtype):
    """Check that a number is not rounded to 0 or infinity in the dtype that is computed with."""
    with np.errstate(all="ignore"):
        rounded = abs(dtype.type(value))
    if value and not 0 < rounded < math.inf:
        raise ValueError(f"{name}={value} is {rounded} in {dtype}, expected a number that {dtype} can hold")
