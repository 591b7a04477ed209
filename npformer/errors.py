"""The class of what a user can mend; it needs the standard library alone."""


class UserError(ValueError):
    """A mistake of who runs a command, such as a missing file: its message says what to change.

    A command shows the message as one line and ends with exit code 1. What commands and scripts
    refuse is of this class, and so are errors of the library that only a file, an option or the
    start of the program can cause. A function that refuses an argument raises ``ValueError``.
    """
