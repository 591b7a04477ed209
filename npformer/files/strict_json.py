"""JSON that is restored exactly, and JSON of unknown origin, which is bounded in size and depth."""

import itertools
import json

from npformer.errors import UserError
from npformer.tree import DEEPEST

LONGEST = 8 * 2**20  # characters of a text; parsed, it takes some times as much memory
MOST_VALUES = 400_000  # about 130 bytes each in memory
MOST_DIGITS = 299  # of an integer, so that it can be converted to a float


def parse_json(text, what):
    """Parse JSON of unknown origin; ``what`` names it in error messages.

    What is no JSON, or larger than anything that npformer writes, is a ``UserError``.

    >>> parse_json("[1, 2", "the header")
    Traceback (most recent call last):
    npformer.UserError: the header is not valid JSON: Expecting ',' delimiter: \
line 1 column 6 (char 5)
    """
    check_size(text, what)
    try:
        return json.loads(text)
    except RecursionError:
        raise UserError(_too_deep(what)) from None
    except ValueError as error:
        raise UserError(f"{what} is not valid JSON: {error}") from None


def check_size(text, what):
    """Check that JSON is short and has few enough values, before any of them takes memory."""
    if len(text) > LONGEST:
        raise UserError(_too_much(what, f"{len(text):,} characters", LONGEST))
    n = sum(map(text.count, ",:[{"))
    if n > MOST_VALUES:
        raise UserError(_too_much(what, f"up to {n:,} values", MOST_VALUES))


def _too_much(what, size, limit):
    return f"{what} has {size}, expected at most {limit:,}: save more as arrays"


def _too_deep(what):
    return f"{what} is nested too deeply, expected at most {DEEPEST} levels"


def check_restorable(values, what):
    """Check that a dict is what JSON restores.

    JSON turns tuples into lists, and the keys of dicts into strings.

    >>> check_restorable({"sizes": (1, 2)}, "info")
    Traceback (most recent call last):
    TypeError: info['sizes'] is a tuple, expected what JSON has: a dict, list, str, int, float, \
bool or None
    """
    if not isinstance(values, dict):
        raise TypeError(f"{what} is a {type(values).__name__}, expected a dict")
    _check_value(values, what, what, 0, itertools.count())


def _check_value(value, where, what, depth, count):
    if next(count) > MOST_VALUES:  # lists and dicts that are in several places are saved as often
        raise UserError(_too_much(what, "too many values", MOST_VALUES))
    if depth > DEEPEST:
        raise UserError(_too_deep(what))
    if isinstance(value, dict):
        for key, child in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}, expected strings")
            _check_value(child, f"{where}[{key!r}]", what, depth + 1, count)
    elif isinstance(value, list):
        for i, child in enumerate(value):
            _check_value(child, f"{where}[{i}]", what, depth + 1, count)
    elif isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        size = f"more than {MOST_DIGITS} digits"
        raise UserError(f"{where} is an integer of {size}, expected a smaller one")
    elif value is not None and not isinstance(value, (str, int, float)):
        wanted = "what JSON has: a dict, list, str, int, float, bool or None"
        if getattr(value, "ndim", None) == 0:  # a number of NumPy
            wanted += "; x.item() is that of NumPy's x"
        raise TypeError(f"{where} is a {type(value).__name__}, expected {wanted}")
