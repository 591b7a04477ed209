"""What the figures of the book have in common: their size, letters and greys, boxes, arrows and matrices.

``python scripts/figures/draw_NAME.py`` draws one figure with each function that has the decorator ``figure``.
"""

import re
import sys
from io import StringIO
from pathlib import Path

import numpy as np

from npformer.commands.arguments import new_parser  # needs pip install -e .
from npformer.commands.command import command
from npformer.commands.output import why_no_pictures

if why := why_no_pictures():
    sys.exit(f"error: pictures {why}")
import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FIGURES = []  # the functions of the script that is run
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
LIGHT, MIDDLE, DARK = "#e8e8e8", "#b0b0b0", "#404040"
DASHED = (0, (3, 2))  # a linestyle
plt.rcParams.update(
    {
        "svg.hashsalt": "npformer",  # the same figure gives the same file
        "svg.fonttype": "none",  # letters, not outlines
        "font.family": "sans-serif",
        "font.size": 12,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)


def figure(draw):
    """Decorate a function that draws a figure, docs/figures/NAME.svg: its script's command line draws it."""
    FIGURES.append(draw)
    return draw


@command
def main(argv=None):
    """Draw the figures of the script that is run. Coordinates are rounded to 0.001 points."""
    new_parser(sys.modules["__main__"].__doc__).parse_args(argv)
    for draw in FIGURES:
        drawing = StringIO()
        with plt.rc_context():  # what a figure sets is for this figure only
            draw()
            plt.savefig(drawing, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
        plt.close()
        rounded = re.sub(r"\d+\.\d{5,}", lambda number: f"{float(number[0]):.3f}", drawing.getvalue())
        (FOLDER / f"{draw.__name__}.svg").write_text(rounded, encoding="utf-8")


def chart(xlabel, ylabel):
    """Return axes for curves, with larger letters than those of drawings."""
    plt.rcParams["font.size"] = 14
    axes = plt.figure(figsize=(6.4, 4.0), layout="constrained").add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return axes


def canvas(width, height):
    """Return axes without ticks whose units are those of the figure, 1 = 1 inch."""
    figure = plt.figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height), aspect="equal")
    axes.set_axis_off()
    return axes


def box(axes, x, y, width, height, text, color=LIGHT, size=12):
    """Draw a box whose lower left corner is (x, y), with a text in its centre."""
    corners = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=corners, facecolor=color, edgecolor=DARK))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", size=size)


def cell(axes, x, y, width, height, text="", color="white", size=11, ink="black", **style):
    """Draw a rectangle whose lower left corner is (x, y), with a text in its centre."""
    axes.add_patch(plt.Rectangle((x, y), width, height, **{"facecolor": color, "edgecolor": DARK} | style))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", size=size, color=ink)


def label(axes, x, y, text, size=10, pad=1.5):
    """Write a text on white, above the lines that it stands on."""
    style = {"facecolor": "white", "edgecolor": "none", "pad": pad}
    axes.text(x, y, text, ha="center", va="center", size=size, bbox=style)


def node(axes, x, y, text="", radius=0.2, color="white", size=11):
    """Draw a circle around (x, y) above the lines that end there, with a text in its centre."""
    axes.add_patch(plt.Circle((x, y), radius, facecolor=color, edgecolor=DARK, zorder=3))
    axes.text(x, y, text, ha="center", va="center", size=size, zorder=4)


def arrow(axes, start, end, text="", curve=0.0, side="right", linestyle="-"):
    """Draw an arrow between two points, with a text (such as a shape) beside its middle."""
    style = {"arrowstyle": "-|>", "mutation_scale": 12, "color": DARK, "shrinkA": 0, "shrinkB": 0, "ls": linestyle}
    axes.add_patch(FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={curve}", **style))
    middle = (np.add(start, end)) / 2
    shift, align = (0.08, "left") if side == "right" else (-0.08, "right")
    axes.text(middle[0] + shift, middle[1], text, ha=align, va="center", size=10, color=DARK)


def matrix(axes, x, y, values, side=0.5, form="{:g}", title=""):
    """Draw a matrix of numbers, larger ones darker; its upper left corner is (x, y)."""
    values = np.atleast_2d(values)
    low, high = float(values.min()), float(values.max())
    for (row, column), value in np.ndenumerate(values):
        share = (value - low) / (high - low) if high > low else 0.0
        shade, ink = str(1 - 0.6 * share), "white" if share > 0.75 else "black"
        cell(axes, x + column * side, y - (row + 1) * side, side, side, form.format(value), shade, size=10, ink=ink)
    axes.text(x + values.shape[1] * side / 2, y + 0.12, title, ha="center", va="bottom")
