r"""Figures that are lists of shapes, diagrams/NAME.txt.

A file begins with a sentence about the figure. Then each line is a shape of drawing.py: its name,
the numbers and points that it is called with, options, and after a bar its text, in which ``\n``
begins a new line::

    canvas 4.4 6.3
    box 0.4 0.15 0.7 0.45 color=white | q
    arrow 0.75,0.6 0.75,1.15 | (T, K)
"""

from functools import partial
from pathlib import Path

from scripts.figures import drawing  # needs pip install -e .

from npformer.errors import UserError

SHAPES = ("arrow", "box", "canvas", "cell", "label", "line", "node", "write")
STYLES = {"light": drawing.LIGHT, "middle": drawing.MIDDLE, "dark": drawing.DARK}
STYLES |= {"dashed": drawing.DASHED, "dotted": ":"}


def draw(path):
    """Draw the shapes of a file."""
    _, _, *lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        shape, _, text = line.partition(" | ")
        name, *words = shape.split()
        values = [value(word) for word in words if "=" not in word]
        options = dict(word.split("=") for word in words if "=" in word)
        options = {option: value(word) for option, word in options.items()}
        if text:
            values.append(text.replace("\\n", "\n"))
        if name not in SHAPES:
            raise UserError(f"{path}: no shape {name!r}, expected one of {', '.join(SHAPES)}")
        getattr(drawing, name)(*values, **options)


def value(word):
    """A number, a point, or the name of a style or a place."""
    if "," in word:
        return tuple(map(float, word.split(",")))
    try:
        return float(word)
    except ValueError:
        return STYLES.get(word, word)


FOLDER = Path(__file__).parent / "diagrams"
DIAGRAMS = {path.stem: partial(draw, path) for path in sorted(FOLDER.glob("*.txt"))}
