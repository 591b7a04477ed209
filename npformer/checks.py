"""Checks that raise errors for bad input; each message has the argument, what was given and what was expected."""

import inspect
import math
import numbers
import warnings

import numpy as np


def warn(message):
    """Issue a warning at the line of the caller's program that called npformer."""
    frame, level = inspect.currentframe(), 1
    while frame and frame.f_globals.get("__name__", "").startswith("npformer."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def check_key(key, name="key"):
    """Check that a key is an integer, or an object with its own ``derive`` method, as in a recorded step."""
    if hasattr(key, "derive"):
        return
    if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
        raise TypeError(f"{name} is a {type(key).__name__}, expected an integer")


def check_shape(**arrays):
    """Check that arrays have the expected shapes: ``check_shape(dy=(dy, x.shape), bias=(bias, (512,)))``."""
    for name, (array, shape) in arrays.items():
        if array.shape != tuple(shape):
            raise ValueError(f"{name} has shape {array.shape}, expected {tuple(shape)}")


def check_positive(**values):
    """Check that values are finite numbers above 0."""
    for name, value in values.items():
        check_number(name, value)
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name}={value}, expected a finite number above 0")


def check_not_negative(**values):
    """Check that values are finite numbers of 0 or more."""
    for name, value in values.items():
        check_number(name, value)
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name}={value}, expected a finite number of 0 or more")


def check_fraction(**values):
    """Check that values are numbers in [0, 1)."""
    for name, value in values.items():
        check_number(name, value)
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value}, expected 0 <= {name} < 1")


def check_number(name, value):
    """Check that a value is a real number, and not a string."""
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected a number")


def check_int(name, value, at_least=-math.inf, at_most=math.inf):
    """Check that a value is an integer from ``at_least`` to ``at_most``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={value!r} is a {type(value).__name__}, expected an int")
    if value < at_least:
        raise ValueError(f"{name}={value}, expected at least {at_least}")
    if value > at_most:
        raise ValueError(f"{name}={value}, expected at most {at_most}")
