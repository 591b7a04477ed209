"""What a person's code has made, in one line: errors, values, and the arguments of a case."""

import linecache
import re
import traceback

import numpy as np

from npformer import tree

LONGEST_LINE = 1000  # characters


def error_text(error, file):
    """An error in one line, with the line of the person's file that raised it."""
    texts = {
        SystemExit: "it must return, not exit",
        EOFError: "your code cannot read input while it is checked",
    }
    if type(error) in texts:
        text = f"{type(error).__name__}: {texts[type(error)]}"
    else:
        text = error_line(error)
    line = line_of(error, file)
    if line:
        text += f" (line {line}: {linecache.getline(file, line).strip()})"
    return one_line(text)


def error_line(error):
    """The type of an error and the first line of its message."""
    first = (text_of(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def line_of(error, file):
    """The number of the line of a file in which an error was raised, or None."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((frame.lineno for frame in frames if frame.filename == file), None)


def one_line(text):
    """A text, of which a person's code may have made a part, in one line that is not too long."""
    text = text.replace("\n", " ")
    return text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + "…"


def text_of(value):
    """The text of what a person's code has made, whose own methods may raise."""
    try:
        return str(value)
    except (Exception, SystemExit) as error:
        return f"(its text cannot be shown: that raises {type(error).__name__})"


def shown(value):
    """A list in one line that is not too long."""
    text = " ".join(text_of(value).split())
    return text if len(text) <= 100 else text[:99] + "…"


def kind(value):
    """The type of a value, with an article."""
    name = "array" if isinstance(value, np.ndarray) else type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def two_numbers(a, b):
    """Two different numbers with as many digits as are of use, so that the texts differ too."""
    if a.dtype.kind not in "fc":
        return str(a), str(b)
    digits = next((n for n in (6, 9, 12) if f"{a:.{n}g}" != f"{b:.{n}g}"), 17)
    return f"{a:.{digits}g}", f"{b:.{digits}g}"


def described(exercise, case):
    """The arguments of a case in one line."""
    texts = [argument_text(name, x) for name, x in zip(exercise.arguments, case.args, strict=True)]
    return f"{case.what}: {', '.join(texts)}"


def argument_text(name, x):
    """An argument with its numbers if they are few, else with its shape."""
    if isinstance(x, np.ndarray) and x.size <= 8:
        text = np.array2string(x.round(4) if x.dtype.kind == "f" else x, separator=", ")
        return f"{name} = " + re.sub(r"\s*\n\s*", " ", text)
    if isinstance(x, np.ndarray):
        return f"{name} of shape {x.shape}"
    if isinstance(x, dict) and tree.count(x) <= 8:
        return f"{name} = {tree.map_leaves(rounded, x)}".replace("'", '"')
    if isinstance(x, dict) and len(tree.leaves(x)) <= 4:
        return f"{name} of shapes {tree.map_leaves(np.shape, x)}".replace("'", '"')
    if isinstance(x, dict) or callable(x) or (isinstance(x, list) and len(x) > 8):
        return name
    return f"{name} = {x!r}"


def rounded(x):
    """The numbers of an array, as a list."""
    return x.round(4).tolist()
