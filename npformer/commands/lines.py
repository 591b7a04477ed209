"""Texts of which a command answers one line after another: a line that cannot be answered costs no other line."""

import sys

from npformer.commands.command import message_or_raise, print_error

from npformer.data.parallel_text import decoded, read_lines
from npformer.language.text import text_of

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


def standard_input():
    """The stream from which a command reads what "-" stands for; raises if the program was started without one."""
    if sys.stdin is None:
        raise ValueError("there is no standard input: expected a text, or the name of a file, as an argument")
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

    If the file is damaged, this says so and ends, so that the lines before the damage are answered. It also ends after
    more than ``BAD_LINES`` lines one after another, apart from blank ones, that are not UTF-8: some files have no end.
    """
    n_bad = 0

    def refuse_some(message):
        nonlocal n_bad
        n_bad += 1
        if n_bad > BAD_LINES:
            many = f"more than {BAD_LINES} lines one after another are not UTF-8"
            raise ValueError(f"{name_of(path)} is no text, and is read no further: {many}")
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
        return text_of(read(argument), STANDARD_INPUT).removesuffix("\n")  # which text_of adds
    return argument
