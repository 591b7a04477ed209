"""Checks that raise errors for bad input; each message has the argument, what was given and what
was expected.

Checks of numbers return them as Python's own: what is given may be a number of NumPy's, which
overflows, or a fraction, which cannot be saved.
"""

import inspect
import math
import numbers
import warnings
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from npformer.arrays import has_own_rules, is_recording, library_of
from npformer.errors import UserError

INT64 = np.dtype(np.int64)


def warn(message):
    """Issue a warning at the line of the caller's program that called npformer."""
    ours = "npformer", "contextlib"  # which calls the context managers of npformer
    frame, level = inspect.currentframe(), 1
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in ours:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def check_key(name, value):
    """An integer as an ``int``, or an object with a ``derive`` method, as in a recorded step."""
    return value if type(value) is int or hasattr(value, "derive") else check_int(name, value)


def check_shape(**arrays):
    """Check that arrays have the expected shapes:
    ``check_shape(dy=(dy, x.shape), bias=(bias, (512,)))``.
    """
    for name, (array, shape) in arrays.items():
        shape = tuple(shape)
        if array.shape != shape:
            advice = advice_on_ids(name, array.shape, shape) if array.dtype.kind in "iu" else ""
            advice = advice or swapped(name, array.shape, shape.__eq__)
            raise UserError(f"{name} has shape {array.shape}, expected {shape}{advice}")


def advice_on_ids(name, shape, expected):
    """What to try, at the end of an error, if ids have one axis more than expected; else "".

    >>> advice_on_ids("targets", (8, 5), (8,))
    ': try targets.argmax(axis=-1) if its rows are one-hot'
    """
    if not shape or shape[:-1] != expected:
        return ""
    if shape[-1] == 1:
        return f": try {name}[..., 0]"
    return f": try {name}.argmax(axis=-1) if its rows are one-hot"


def check_two_axes(name, ids, expected, n_least=0):
    """Check that ids are an array with two axes, and not fewer than so many columns."""
    library_of(ids, name)  # raises if it is not an array
    if ids.ndim != 2 or ids.shape[1] < n_least:
        advice = advice_on_ids(name, ids.shape, ids.shape[:2])
        raise UserError(f"{name} has shape {ids.shape}, {expected}{advice}")


def swapped(name, shape, fits):
    """What to try, at the end of an error, if a shape would fit with two neighbouring axes swapped;
    else "".

    ``fits(shape)`` says whether a shape does. The last axes are tried first.

    >>> swapped("weight", (512, 64), lambda shape: shape[0] == 64)
    ': try weight.T'
    """
    for i in reversed(range(len(shape) - 1)):
        if shape[i] != shape[i + 1] and fits((*shape[:i], shape[i + 1], shape[i], *shape[i + 2 :])):
            return f": try {name}.T" if len(shape) == 2 else f": try {name}.swapaxes({i}, {i + 1})"
    return ""


def shown(value):
    """The text of a value in an error: not that of a whole model, or of a million digits."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an int of {value.bit_length()} bits"
    if isinstance(value, np.ndarray) and value.ndim:
        return f"an array of shape {value.shape}"
    text = repr(value)
    if "\n" in text or (isinstance(value, dict) and len(text) > 80):  # parameters, for example
        return f"a {type(value).__name__}"
    return text[:80]


def check_choice(name, value, choices):
    """One of several strings."""
    if isinstance(value, str) and value in choices:
        return value
    raise UserError(f"{name}={shown(value)}, expected {named(choices)}")


def named(choices):
    """The names of choices in an error, of which there are two or more.

    >>> named(["left", "right", "both"])
    "'left', 'right' or 'both'"
    """
    *others, last = map(repr, choices)
    return f"{', '.join(others)} or {last}"


def check_flag(name, value):
    """True or False as a ``bool``, also 1 and 0."""
    if isinstance(value, (np.bool_, numbers.Integral)) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name}={shown(value)} is a {type(value).__name__}, expected True or False")


def check_int(name, value, at_least=-math.inf, at_most=math.inf):
    """An integer from ``at_least`` to ``at_most`` as an ``int``, as those of NumPy overflow."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={shown(value)} is a {type(value).__name__}, expected an int")
    if value < at_least:
        raise UserError(f"{name}={shown(value)}, expected at least {at_least}")
    if value > at_most:
        raise UserError(f"{name}={shown(value)}, expected at most {at_most}")
    return int(value)


def is_float_dtype(dtype):
    """Whether a dtype is one of real or complex floats that we compute with: not one of 8 bits."""
    if dtype.name == "bfloat16":  # of ml_dtypes, with kind "V"
        return True
    return dtype.kind in "fc" and dtype.itemsize > 1


def name_of_dtype(dtype):
    """The name of a dtype, which is given as such, as a type of NumPy's, or by its name."""
    return getattr(dtype, "__name__", str(dtype))


def check_float_dtype(name, value):
    """A dtype of real or complex floats, or its name, as a ``numpy.dtype``."""
    try:
        dtype = None if value is None else np.dtype(value)  # which takes None for float64
    except TypeError:
        dtype = None
    if dtype is None or not is_float_dtype(dtype):
        raise TypeError(f"{name}={shown(value)}, expected a dtype of floats, such as 'float32'")
    return dtype


def each_line(name, lines):
    """Yield the strings of a list or another iterable; one string in its place would be taken as
    its characters.
    """
    if isinstance(lines, str):
        expected = f"a list of them: try [{name}]"
        raise TypeError(f"{name} is one string, {lines[:40]!r}, expected {expected}")
    if not isinstance(lines, Iterable):
        expected = "a list of strings"
        raise TypeError(f"{name}={shown(lines)} is a {type(lines).__name__}, expected {expected}")
    for i, line in enumerate(lines):
        if not isinstance(line, str):
            raise TypeError(f"{name}[{i}]={shown(line)} is a {type(line).__name__}, expected a str")
        yield line


def check_no_class(name, value):
    """Check that a value is no class, which somebody forgot to call.

    >>> check_no_class("model", dict)
    Traceback (most recent call last):
    TypeError: model is the class dict, expected dict(…)
    """
    if isinstance(value, type):
        raise TypeError(f"{name} is the class {value.__name__}, expected {value.__name__}(…)")


def check_callable(name, value, expected="a function"):
    """Something that can be called."""
    if not callable(value):
        raise TypeError(f"{name}={shown(value)} is a {type(value).__name__}, expected {expected}")
    return value


def check_paths(name, paths):
    """Paths of parameters, or parts of them, as a list; one string in its place would be taken as
    its characters.
    """
    if isinstance(paths, str) or not isinstance(paths, Iterable):
        advice = f": try [{paths!r}]" if isinstance(paths, str) else " such as ['encoder']"
        expected = f"a sequence of paths{advice}"
        raise TypeError(f"{name}={shown(paths)} is a {type(paths).__name__}, expected {expected}")
    return list(paths)


def check_number(name, value):
    """A real number, also as an array without axes, as a ``float``."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and not has_own_rules(type(value)):
        value = value.item()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={shown(value)} is a {type(value).__name__}, expected a number")
    try:
        return float(value)
    except OverflowError:
        expected = "a number in the range of a float"
        raise UserError(f"{name}={shown(value)}, expected {expected}") from None


@lru_cache(maxsize=100)  # an operation checks the same eps in each call
def check_in_dtype(name, value, dtype):
    """Check that a number is not rounded to 0 or infinity in the dtype that is computed with."""
    with np.errstate(all="ignore"):
        rounded = abs(dtype.type(value))
    if value and not 0 < rounded < math.inf:
        expected = f"a number that {dtype} can hold"
        raise UserError(f"{name}={value} is {rounded} in {dtype}, expected {expected}")


def check_array(x, name, kind):
    """The library of an array; raises if it is none, or has a dtype that does not fit its kind, as
    "mask" or "ids".
    """
    if kind == "ids" and isinstance(x, list) and any(isinstance(item, str) for item in x):
        expected = f"an array of integers{_advice_on_texts(name)}"
        raise TypeError(f"{name} is a list of texts, expected {expected}")
    library = library_of(x, name)
    if kind == "mask":
        if x.dtype.kind != "b":
            raise TypeError(
                f"{name} has dtype {x.dtype}, expected bool with True = may attend (or: is counted)"
                ": a 1/0 mask becomes one with mask.astype(bool), an additive mask (0 / -inf) "
                "with npformer.from_additive(mask)"
            )
    elif kind == "ids":
        if x.dtype.kind not in "iu":
            expected = f"integers{_advice_on_dtype(x, name)}"
            raise TypeError(f"{name} has dtype {x.dtype}, expected {expected}")
    elif not is_float_dtype(x.dtype):
        advice = f": try {name}.astype('float32')" if x.dtype.kind in "biuf" else ""
        raise TypeError(f"{name} has dtype {x.dtype}, expected a float dtype{advice}")
    elif kind == "written" and isinstance(x, np.ndarray) and not x.flags.writeable:
        expected = f"an array that can be written: try {name}.copy()"
        raise UserError(f"{name} is read-only, expected {expected}")
    return library


def _advice_on_dtype(x, name):
    """What to try, at the end of an error, if an array is not one of integers; "" if its numbers
    have fractions.
    """
    has_texts = x.dtype.kind == "O" and any(isinstance(item, str) for item in x.flat)
    if has_texts or x.dtype.kind in "SUT":
        return _advice_on_texts(name)
    if x.dtype.kind not in "bf":
        return ""
    if x.ndim > 1 and x.shape[-1] > 1:
        is_binary = (x == 0) | (x == 1)
        if is_binary.all() and (x.sum(axis=-1) == 1).all():
            return f": its rows are one-hot, try {name}.argmax(axis=-1)"
    is_whole = x.dtype.kind == "b" or (x == x.round()).all()
    return f": try {name}.astype('int64')" if is_whole else ""


def _advice_on_texts(name):
    if name == "targets":
        return ": try classes, targets = numpy.unique(targets, return_inverse=True)"
    return ": encode the texts first"


def check_ids(ids, size, name, ignore_id=None, *, may_ignore=False):
    """Check that token ids are integers with 0 <= id < ``size``, except entries equal to
    ``ignore_id``.

    ``may_ignore`` says whether the caller has an ``ignore_id``, which may be None.
    """
    if (
        type(ids) is np.ndarray
        and ids.dtype is INT64
        and ids.size
        and np.maximum.reduce(ids.view(np.uint64), axis=None) < size
    ):
        return  # seen as unsigned, a negative id is a large one, so one comparison is enough
    library = check_array(ids, name, "ids")
    if ids.size == 0 or is_recording(library):
        return
    if ids.min() >= 0 and ids.max() < size:
        return
    wrong = (ids < 0) | (ids >= size)
    if ignore_id is not None:
        wrong &= ids != ignore_id
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        wrong_id = int(ids[where])
        advice = f", or ignore_id={wrong_id} to leave it out" if may_ignore and wrong_id < 0 else ""
        raise UserError(f"{name}{list(where)} is {wrong_id}, expected 0 <= id < {size}{advice}")
