"""Texts of which a command answers one line after another: a line that cannot be answered costs no other line."""

import sys

from npformer.commands.command import message_or_raise, print_error

from npformer.data.parallel_text import decoded, read_lines

STANDARD_INPUT = "standard input"


class Refusals:
    """A function that names a line that cannot be answered on standard error, and the exit code that follows."""

    def __init__(self):
        self.exit_code = 0

    def __call__(self, message):
        """Print the message; the exit code is 1 from now on."""
        self.exit_code = 1
        print_error(message)


def lines_of(path, refuse):
    """Yield the lines of a file, or of standard input if ``path`` is None; one that is refused is yielded as "".

    If the file is damaged, this says so and ends, so that the lines before the damage are answered.
    """
    try:
        yield from read_lines(path, refuse) if path else decoded(sys.stdin.buffer, STANDARD_INPUT, refuse)
    except (OSError, ValueError) as error:
        refuse(message_or_raise(error))


def text_of_argument(argument):
    """The text of an argument; "-" stands for all of standard input."""
    if argument != "-":
        return argument
    if sys.stdin is None:
        raise ValueError("there is no standard input: expected a text instead of -")
    text = "\n".join(decoded(sys.stdin.buffer, STANDARD_INPUT))
    if not text.strip():
        raise ValueError("standard input is empty, expected a text")
    return text
