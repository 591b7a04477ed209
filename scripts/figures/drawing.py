"""What the figures of the book have in common: their size, letters and greys, boxes, arrows and matrices."""

import re
from io import StringIO
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
LIGHT, MIDDLE, DARK = "#e8e8e8", "#b0b0b0", "#404040"
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


def arrow(axes, start, end, text="", curve=0.0, side="right"):
    """Draw an arrow between two points, with a text (such as a shape) beside its middle."""
    style = {"arrowstyle": "-|>", "mutation_scale": 12, "color": DARK, "shrinkA": 0, "shrinkB": 0}
    axes.add_patch(FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={curve}", **style))
    middle = (np.add(start, end)) / 2
    shift, align = (0.08, "left") if side == "right" else (-0.08, "right")
    axes.text(middle[0] + shift, middle[1], text, ha=align, va="center", size=10, color=DARK)


def matrix(axes, x, y, values, cell=0.5, form="{:g}", title=""):
    """Draw a matrix of numbers, larger ones darker; its upper left corner is (x, y)."""
    values = np.atleast_2d(values)
    low, high = float(values.min()), float(values.max())
    for (row, column), value in np.ndenumerate(values):
        share = (value - low) / (high - low) if high > low else 0.0
        left, bottom = x + column * cell, y - (row + 1) * cell
        axes.add_patch(plt.Rectangle((left, bottom), cell, cell, facecolor=str(1 - 0.6 * share), edgecolor=DARK))
        color = "white" if share > 0.75 else "black"
        axes.text(
            left + cell / 2, bottom + cell / 2, form.format(value), ha="center", va="center", size=10, color=color
        )
    axes.text(x + values.shape[1] * cell / 2, y + 0.12, title, ha="center", va="bottom")


def save(axes, name):
    """Write the figure of the axes to docs/figures/NAME.svg, with coordinates rounded to 0.001 points."""
    drawing = StringIO()
    axes.figure.savefig(drawing, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    rounded = re.sub(r"\d+\.\d{5,}", lambda number: f"{float(number[0]):.3f}", drawing.getvalue())
    (FOLDER / f"{name}.svg").write_text(rounded, encoding="utf-8")
    plt.close(axes.figure)
