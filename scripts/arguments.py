"""Types and options that the command lines of several scripts share."""

import argparse
import json
import math
import os
import sys

from npformer import get_backend


def positive(text):
    """A whole number above zero."""
    return natural(text, at_least=1)


def natural(text, at_least=0):
    """A whole number, zero included."""
    if not text.isdecimal() or int(text) < at_least:
        raise argparse.ArgumentTypeError(f"{text}, expected a whole number of {at_least} or more")
    return int(text)


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
    value = float(text)
    if not fits(value):
        raise argparse.ArgumentTypeError(f"{text}, expected {expected}")
    return value


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
    try:
        return get_backend(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_search(parser):
    """The options of beam search, which ``search_of`` reads."""
    add = parser.add_argument
    add("--beam", type=positive, default=5, metavar="N", help="number of hypotheses; 1 is greedy search (default: 5)")
    add("--length-penalty", type=float, default=1.0, metavar="A", help="larger: longer translations (default: 1)")
    add("--penalty-form", choices=["power", "gnmt"], default="power", help="length^A or ((5 + length)/6)^A")


def search_of(options):
    """The keywords of ``beam_search``."""
    return {"beam_size": options.beam, "length_penalty": options.length_penalty, "penalty_form": options.penalty_form}


def reader_is_gone():
    """Discard further output: the reader of standard output (for example head) has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_json(path, figures):
    """Write figures to a JSON file. NaN and inf become null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_without_nan(figures), indent=2, allow_nan=False) + "\n")


def _without_nan(value):
    if isinstance(value, dict):
        return {name: _without_nan(child) for name, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
