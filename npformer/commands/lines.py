"""Texts of which a command answers one line after another: a line that cannot be answered costs no
other line.
"""

import sys
from pathlib import Path

from npformer.commands.arguments import utf_8
from npformer.commands.command import message_or_raise, print_error

from npformer.errors import UserError
from npformer.text.lines import decoded, read_lines, text_of

STANDARD_INPUT = "standard input"
BAD_LINES = 100  # that are not UTF-8: a file with more of them is no text


class Refusals:
    """What cannot be answered, which is named on standard error, and the exit code that follows."""

    def __init__(self):
        self.exit_code = 0

    def tell(self, message):
        """Print the message; the exit code is 1 from now on."""
        self.exit_code = 1
        print_error(message)


def add_lines(parser, noun):
    """The arguments of a command that answers lines: the lines themselves, or a file of them."""
    parser.add(
        "lines",
        "each in quotes (default: the lines of --file or of standard input)",
        nargs="*",
        type=utf_8,
        metavar=noun.upper(),
    )
    parser.add(
        "--file",
        f"text file with one {noun} per line, plain or .gz; - is standard input",
        type=Path,
    )


def choose_lines(parser, options, noun):
    """Set ``options.file`` to "-" if neither lines nor a file were typed, and
    ``options.is_typed`` to whether a person types the lines.
    """
    if options.lines and options.file:
        parser.error(f"{noun}s and --file: expected one of them")
    if options.lines in ([], ["-"]):
        options.lines = []
        options.file = options.file or Path("-")
    options.is_typed = is_standard_input(options.file) and standard_input().isatty()


def standard_input():
    """The stream from which a command reads what "-" stands for; raises if the program was started
    without one.
    """
    if sys.stdin is None:
        expected = "expected a text, or the name of a file, as an argument"
        raise UserError(f"there is no standard input: {expected}")
    return sys.stdin


def is_standard_input(argument):
    """Whether an argument, a text or a path, is "-"."""
    return str(argument) == "-"


def name_of(path):
    """What messages call a file, or standard input."""
    return STANDARD_INPUT if is_standard_input(path) else path


def read(path, refuse=None):
    """The lines of a file, or of standard input; ``refuse`` is as of ``decoded``."""
    if is_standard_input(path):
        return decoded(standard_input().buffer, STANDARD_INPUT, refuse)
    return read_lines(path, refuse)


def lines_of(path, refuse):
    """Yield the lines of a file, or of standard input; one that is refused is yielded as "".

    If the file is damaged, this says so and ends, so that the lines before the damage are answered.
    It also ends after more than ``BAD_LINES`` lines one after another, apart from blank ones, that
    are not UTF-8: some files have no end.
    """
    n_bad = 0

    def refuse_some(message):
        nonlocal n_bad
        n_bad += 1
        if n_bad > BAD_LINES:
            many = f"more than {BAD_LINES} lines one after another are not UTF-8"
            raise UserError(f"{name_of(path)} is no text, and is read no further: {many}")
        refuse(message)

    try:
        for line in read(path, refuse_some):
            if line.strip():
                n_bad = 0
            yield line
    except (OSError, ValueError) as error:
        refuse(message_or_raise(error))


def text_of_argument(argument):
    """The text of an argument; "-" stands for all of standard input."""
    if is_standard_input(argument):
        # text_of adds an end of line.
        return text_of(read(argument), STANDARD_INPUT).removesuffix("\n")
    return argument
