"""JSON from a file of unknown origin: bounded in size and depth, and with each key once."""

import itertools
import json

from npformer.tree import DEEPEST

MOST_VALUES = 400_000  # about 130 bytes each in memory
MOST_DIGITS = 300  # of an integer, so that it can be converted to a float


def parse_json(text, what):
    """Parse JSON from an untrusted file.

    Parameters
    ----------
    text : str
    what : str
        What the text is, for error messages.

    Raises
    ------
    ValueError
        If it is no JSON, repeats a key, or is larger or deeper than anything that npformer writes.

    Examples
    --------
    >>> parse_json('{"a": [1, 2.5]}', "the header")
    {'a': [1, 2.5]}
    >>> parse_json('{"a": 1, "a": 2}', "the header")
    Traceback (most recent call last):
    ValueError: the header is not valid JSON: it has the key 'a' twice
    """
    check_size(text, what)
    try:
        value = json.loads(text, object_pairs_hook=_with_each_key_once, parse_int=_integer)
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply, expected at most {DEEPEST} levels") from None
    except ValueError as error:
        raise ValueError(f"{what} is not valid JSON: {error}") from None
    check_depth(value, what)
    return value


def check_size(text, what):
    """Check that JSON has few enough values, before any of them takes memory."""
    n = sum(map(text.count, ",:[{"))
    if n > MOST_VALUES:
        raise ValueError(f"{what} has up to {n:,} values, expected at most {MOST_VALUES:,}: save more as arrays")


def check_depth(value, what):
    """Check that lists and dicts are not nested too deeply, which would end in a ``RecursionError`` elsewhere."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [child for each in level for child in _children(each)]
        if not level:
            return
    raise ValueError(f"{what} is nested too deeply, expected at most {DEEPEST} levels")


def _children(value):
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _with_each_key_once(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set()
        key = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"it has the key {key!r:.60} twice")
    return found


def _integer(digits):
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it has an integer of {len(digits):,} digits, expected at most {MOST_DIGITS}")
    return int(digits)


def check_restorable(values, what):
    """Check that a dict is what JSON restores: it turns tuples into lists, and keys of dicts into strings.

    Raises
    ------
    TypeError, ValueError
        That name the first value which would not be restored.

    Examples
    --------
    >>> check_restorable({"sizes": (1, 2)}, "info")
    Traceback (most recent call last):
    TypeError: info['sizes'] is a tuple, expected what JSON has: a dict, list, str, int, float, bool or None
    """
    if not isinstance(values, dict):
        raise TypeError(f"{what} is a {type(values).__name__}, expected a dict")
    _check_value(values, what, what, 0, itertools.count())


def _check_value(value, where, what, depth, count):
    if next(count) > MOST_VALUES:  # lists and dicts that are in several places are saved as often
        raise ValueError(f"{what} has too many values, expected at most {MOST_VALUES:,}: save more as arrays")
    if depth > DEEPEST:
        raise ValueError(f"{what} is nested too deeply, expected at most {DEEPEST} levels")
    if isinstance(value, dict):
        for key, child in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}, expected strings")
            _check_value(child, f"{where}[{key!r}]", what, depth + 1, count)
    elif isinstance(value, list):
        for i, child in enumerate(value):
            _check_value(child, f"{where}[{i}]", what, depth + 1, count)
    elif isinstance(value, int) and abs(value) >= 10 ** (MOST_DIGITS - 1):
        raise ValueError(f"{where} is an integer of more than {MOST_DIGITS - 1} digits, expected a smaller one")
    elif value is not None and not isinstance(value, (str, int, float)):
        wanted = "a dict, list, str, int, float, bool or None"
        raise TypeError(f"{where} is a {type(value).__name__}, expected what JSON has: {wanted}")
