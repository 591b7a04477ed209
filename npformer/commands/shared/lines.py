"""Texts of which a command answers one line after another: a line that cannot be answered costs no
other line.
"""

import sys
from pathlib import Path

from npformer.commands.shared.arguments import UsageError
from npformer.commands.shared.ending import message_or_raise, print_error

from npformer.errors import UserError
from npformer.text.lines import decoded, read_lines, text_of

STANDARD_INPUT = "standard input"
BAD_LINES = 100  # that are not UTF-8: a file with more of them is no text


class Lines:
    """The lines that a command answers: those that were typed as arguments, or those of a file.

    Attributes
    ----------
    file : Path or None
        None if the lines are arguments; "-" is standard input.
    is_typed : bool
        Whether a person types the lines while they are answered.
    exit_code : int
        1 if a line was refused, else 0.
    """

    def __init__(self, lines, file, noun):
        if lines and file:
            raise UsageError(f"{noun}s and --file: expected one of them")
        if list(lines) in ([], ["-"]):
            lines = ()
            file = file or Path("-")
        self.file = file
        self.is_typed = is_standard_input(file) and standard_input().isatty()
        self.exit_code = 0
        self._arguments = lines

    def refuse(self, message):
        """Print why a line cannot be answered."""
        self.exit_code = 1
        print_error(message)

    def __iter__(self):
        return lines_of(self.file, self.refuse) if self.file else iter(self._arguments)


def standard_input():
    """The stream from which a command reads what "-" stands for; raises if the program was started
    without one.
    """
    if sys.stdin is None:
        raise UserError(
            "there is no standard input: expected a text, or the name of a file, as an argument"
        )
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
            raise UserError(
                f"{name_of(path)} is no text, and is read no further: "
                f"more than {BAD_LINES} lines one after another are not UTF-8"
            )
        refuse(message)

    try:
        for line in read(path, refuse_some):
            if line.strip():
                n_bad = 0
            yield line
    except (OSError, ValueError) as error:
        refuse(message_or_raise(error))


def in_short(messages, most=1):
    """The first of some messages, and how many others there are."""
    shown = messages[:most]
    if len(messages) > most:
        shown.append(f"{len(messages) - most:,} more, too")
    return "; ".join(shown)


def text_of_argument(argument):
    """The text of an argument; "-" stands for all of standard input."""
    if is_standard_input(argument):
        # text_of adds an end of line.
        return text_of(read(argument), STANDARD_INPUT).removesuffix("\n")
    return argument
