"""Types and options that the command lines of several scripts share."""

import argparse
import importlib.util
import math

LARGEST = 2**31 - 1
LARGEST_SEED = 2**64 - 1
LARGEST_BEAM, LONGEST = 1000, 2**16  # memory and time grow with them: a slip of the hand would take all of both


def positive(text):
    """A whole number above zero."""
    return _whole(text, 1, LARGEST)


def positives(text):
    """Whole numbers above zero, between commas."""
    return [positive(part) for part in text.split(",")]


def natural(text):
    """A whole number, zero included, such as a seed."""
    return _whole(text, 0, LARGEST_SEED)


def beam(text):
    """A number of hypotheses."""
    return _whole(text, 1, LARGEST_BEAM)


def length(text):
    """A number of pieces of a sentence."""
    return _whole(text, 1, LONGEST)


def _whole(text, at_least, at_most):
    if not text.isdecimal() or int(text[:40]) < at_least:
        raise argparse.ArgumentTypeError(f"{text:.40}, expected a whole number of {at_least} or more")
    if int(text[:40]) > at_most:
        raise argparse.ArgumentTypeError(f"{text:.40}, expected at most {at_most}")
    return int(text)


def number(text):
    """A finite number."""
    return _number(text, math.isfinite, "a finite number")


def above_zero(text):
    """A finite number above zero."""
    return _number(text, lambda value: 0 < value < math.inf, "a finite number above 0")


def not_negative(text):
    """A finite number, zero included."""
    return _number(text, lambda value: 0 <= value < math.inf, "a finite number of 0 or more")


def probability(text):
    """A number from 0 to below 1."""
    return _number(text, lambda value: 0 <= value < 1, "from 0 to below 1")


def _number(text, fits, expected):
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not fits(value):
        raise argparse.ArgumentTypeError(f"{text}, expected {expected}")
    return value


def utf_8(text):
    """Text that is UTF-8. (In the text of arguments, Python replaces other bytes by surrogates.)"""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r}, expected UTF-8") from error
    return text


def some_of(names):
    """The type of an argument that is a comma-separated list of these names."""

    def parse(text):
        given = text.split(",")
        for name in given:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r}, expected some of {','.join(names)}")
        return given

    return parse


def backend(name):
    """The backend with this name."""
    from npformer import get_backend  # here, as not every script needs npformer

    try:
        return get_backend(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def check_package(name, install):
    """Raise an error that says what to install if a package that the script needs later is missing."""
    if importlib.util.find_spec(name) is None:
        raise ImportError(f"this needs {name}: {install}")


def add_search(parser):
    """The options of beam search, which ``search_of`` reads."""
    add = parser.add_argument
    add("--beam", type=beam, default=5, metavar="N", help="number of hypotheses; 1 is greedy search (default: 5)")
    add("--length-penalty", type=number, default=1.0, metavar="A", help="larger: longer translations (default: 1)")
    add("--penalty-form", choices=["power", "gnmt"], default="power", help="length^A or ((5 + length)/6)^A")


def search_of(options):
    """The keywords of ``beam_search``."""
    return {"beam_size": options.beam, "length_penalty": options.length_penalty, "penalty_form": options.penalty_form}
