"""The class of what a user can mend; it needs the standard library alone."""


class UserError(ValueError):
    """What somebody has given to npformer and can mend: an argument, an option, a file.

    The message names it, says what was given, what was expected and what to do. A command shows
    the message as one line and ends with exit code 1, where any other ``ValueError``, such as
    NumPy's for two shapes that do not fit together, is a bug and keeps its traceback. Something of
    a wrong type is a ``TypeError``, as everywhere in Python.
    """


UserError.__module__ = "npformer"  # where people find it, and what a traceback shows
