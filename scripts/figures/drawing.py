"""What the figures of the book have in common: their size, letters and colours, and the shapes that
they are made of, which are drawn into the current axes of matplotlib.

Numbers are coloured by their sign as on the page docs/play/train.html, red for positive and blue
for negative ones; 0 is white, and the largest absolute value of an array has the full colour. What
is not a number is grey. In the dark theme of a browser the greys are exchanged, and the colours of
numbers and what is written on them stay.
"""

import json
import sys
from pathlib import Path

import numpy as np

from npformer.commands.shared import why_no_pictures  # needs pip install -e .

if why := why_no_pictures():
    sys.exit(f"error: pictures {why}")
import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FIGURES = {}  # the functions that draw one, by their names
RESULTS = Path(__file__).parent / "results"
LIGHT, MIDDLE, DARK = "#e8e8e8", "#b0b0b0", "#404040"
INKS = "#010101", "#fefefe"  # on the colours of numbers; they are not exchanged
# from -1 to 1
BY_SIGN = LinearSegmentedColormap.from_list("by sign", ["#2166ac", "#fefefe", "#b2182b"])
DASHED = (0, (3, 2))  # a linestyle
PLACES = {  # of a text, seen from its point
    "left": {"ha": "right"},
    "right": {"ha": "left"},
    "above": {"va": "bottom"},
    "below": {"va": "top"},
    "on": {"va": "baseline"},
}
plt.rcParams.update(
    {
        "svg.hashsalt": "npformer",  # the same figure gives the same file
        "svg.fonttype": "none",  # letters, not outlines
        "font.family": "sans-serif",
        "font.size": 12,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
)


def figure(draw):
    """Decorate a function that draws a figure, docs/figures/NAME.svg."""
    FIGURES[draw.__name__] = draw
    return draw


def results(name):
    """What the command that the page names has written into the folder results."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def numbers(rows):
    """The matrix whose rows stand in a text, "1 0; 0 1"."""
    return np.array([row.split() for row in rows.split(";")], float)


def chart(xlabel, ylabel):
    """Return axes for curves, with larger letters than those of drawings."""
    plt.rcParams["font.size"] = 14
    axes = plt.figure(figsize=(6.4, 4.0), layout="constrained").add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return axes


def panels(rows, columns=1, *, width=6.2, height, layout="tight", **shared):
    """Return axes in rows and columns, which share what is said: ``sharex=True``, …"""
    size = (width, height)
    _, axes = plt.subplots(rows, columns, figsize=size, layout=layout, **shared)
    return axes


def zero_lines(axes):
    """Draw thin lines through 0."""
    axes.axhline(0, color=MIDDLE, linewidth=0.8, zorder=0)
    axes.axvline(0, color=MIDDLE, linewidth=0.8, zorder=0)


def canvas(width, height):
    """Make axes without ticks whose units are those of the figure, 1 = 1 inch."""
    figure = plt.figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    axes.set_axis_off()


def write(x, y, text, place="", **style):
    """Write a text around a point, or beside it: "left", "right-above", "on" (its line), …"""
    alignment = {"ha": "center", "va": "center"}
    for word in place.split("-"):
        alignment |= PLACES.get(word, {})
    plt.text(x, y, text, **alignment, **style)


def label(x, y, text, size=10, pad=1.5):
    """Write a text on white, above the lines that it stands on."""
    on_white = {"facecolor": "white", "edgecolor": "none", "pad": pad}
    write(x, y, text, size=size, bbox=on_white)


def write_rows(x, top, step, texts, place="left", **style):
    """Write a text beside the middle of each row of a matrix."""
    for row, text in enumerate(texts):
        write(x, top - (row + 0.5) * step, text, place, **style)


def write_columns(left, y, step, texts, place="on", **style):
    """Write a text above or below the middle of each column of a matrix."""
    for column, text in enumerate(texts):
        write(left + (column + 0.5) * step, y, text, place, **style)


def write_directions(middle, y):
    """Write over arrows that go down what they are, and over those that go up on the right."""
    write(middle - 0.6, y, "forward", "left", weight="bold")
    write(middle + 0.6, y, "backward", "right", weight="bold")


def line(*points, color=DARK, **style):
    """Draw a line through points."""
    plt.plot(*zip(*points, strict=True), color=color, **style)


def arrow(start, end, text="", curve=0.0, side="right", linestyle="-"):
    """Draw an arrow between two points, with a text (such as a shape) beside its middle."""
    style = {"arrowstyle": "-|>", "mutation_scale": 12, "shrinkA": 0, "shrinkB": 0}
    bend = f"arc3,rad={curve}"
    style |= {"connectionstyle": bend, "color": DARK, "linestyle": linestyle}
    draw_patch(FancyArrowPatch(start, end, **style))
    x, y = np.add(start, end) / 2
    away = 0.08 if side == "right" else -0.08
    write(x + away, y, text, side, size=10, color=DARK)


def box(x, y, width, height, text="", color=LIGHT, size=12):
    """Draw a box whose lower left corner is (x, y), with a text in its centre."""
    corners = "round,pad=0,rounding_size=0.08"
    style = {"facecolor": color, "edgecolor": DARK}
    draw_patch(FancyBboxPatch((x, y), width, height, boxstyle=corners, **style))
    write(x + width / 2, y + height / 2, text, size=size)


def cell(x, y, width, height, text="", color="white", size=11, ink="black", **style):
    """Draw a rectangle whose lower left corner is (x, y), with a text in its centre."""
    style = {"facecolor": color, "edgecolor": DARK} | style
    draw_patch(plt.Rectangle((x, y), width, height, **style))
    write(x + width / 2, y + height / 2, text, size=size, color=ink)


def node(x, y, text="", radius=0.2, color="white", size=11):
    """Draw a circle around (x, y) above the lines that end there, with a text in its centre."""
    circle = plt.Circle((x, y), radius, facecolor=color, edgecolor=DARK, zorder=3)
    draw_patch(circle)
    write(x, y, text, size=size, zorder=4)


def draw_patch(patch):
    plt.gca().add_patch(patch)


def matrix(
    x, y, values, side=0.5, form="{:g}", title="", *, texts=None, peak=None, width=None, size=10
):
    """Draw a matrix of numbers, coloured by their sign; its upper left corner is (x, y).

    The number ``peak`` has the full colour, and ``width`` is that of a column, if it is not
    ``side``. ``texts`` are written in place of the numbers.
    """
    values = np.atleast_2d(values)
    peak = peak or abs(values).max() or 1.0
    width = width or side
    for (row, column), value in np.ndenumerate(values):
        color, ink = color_of(np.clip(value / peak, -1, 1))
        text = number(value, form) if texts is None else texts[row][column]
        left = x + column * width
        low = y - (row + 1) * side
        cell(left, low, width, side, text, color, size, ink)
    write(x + values.shape[1] * width / 2, y + 0.12, title, "above")


def color_of(share):
    """The colour of a number between -1 and 1, and that of the ink for what is written on it."""
    color = to_hex(BY_SIGN((share + 1) / 2))
    ink = INKS[int(abs(share) > 0.6)]
    return color, ink


def number(value, form="{:g}"):
    """A number with a minus sign instead of a hyphen, and without one if it is rounded to 0."""
    text = form.format(value)
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def rung(middle, low, length, quantity, peak, form="{:g}", width=0.42):
    """Beside an arrow that goes down the name and numbers of a value, beside one that goes up those
    of its gradient.
    """
    high = low + length
    arrow((middle - 0.5, high), (middle - 0.5, low))
    arrow((middle + 0.5, low), (middle + 0.5, high))
    beside_arrows(middle, low + length / 2, quantity, peak, form, width)


def beside_arrows(middle, y, quantity, peak, form="{:g}", width=0.42):
    """The name and numbers of a ``rung`` alone, around the height y."""
    top = y + 0.18
    style = {"side": 0.36, "form": form, "peak": peak, "width": width}
    size = np.shape(np.atleast_2d(quantity["value"]))[1] * width
    matrix(middle - 0.6 - size, top, quantity["value"], **style)
    write(middle - 0.68 - size, y, quantity["name"], "left")
    matrix(middle + 0.6, top, quantity["gradient"], **style)
    write(middle + 0.68 + size, y, f"d{quantity['name']}", "right")
