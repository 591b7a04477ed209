"""What the figures of the book have in common: their size, letters and colours, boxes, arrows and
matrices.

Numbers are coloured by their sign as on the page docs/play/train.html, red for positive and blue
for negative ones; 0 is white, and the largest absolute value of an array has the full colour. What
is not a number is grey. In the dark theme of a browser the greys are exchanged, and the colours of
numbers and what is written on them stay.

``python scripts/figures/draw_NAME.py`` draws one figure with each function that has the decorator
``figure``.
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
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FIGURES = []  # the functions of the script that is run
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
LIGHT, MIDDLE, DARK = "#e8e8e8", "#b0b0b0", "#404040"
IN_THE_DARK = {  # what stands for white, black and the three greys: as an area, and as a line
    "#ffffff": ("#131416", "#131416"),
    "#000000": ("#e6e6e6", "#e6e6e6"),
    LIGHT: ("#303338", "#303338"),
    MIDDLE: ("#4c5057", "#7c8087"),
    DARK: ("#c8c8c8", "#c8c8c8"),
}
INKS = "#010101", "#fefefe"  # on the colours of numbers; they are not exchanged
BY_SIGN = LinearSegmentedColormap.from_list(
    "by sign", ["#2166ac", "#fefefe", "#b2182b"]
)  # from -1 to 1
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
    """Decorate a function that draws a figure, docs/figures/NAME.svg: its script's command line
    draws it.
    """
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
            plt.savefig(
                drawing, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white"
            )
        plt.close()
        rounded = re.sub(
            r"\d+\.\d{5,}", lambda number: f"{float(number[0]):.3f}", drawing.getvalue()
        )
        text = rounded.replace("</svg>", f"{dark_style()}</svg>")
        (FOLDER / f"{draw.__name__}.svg").write_text(text, encoding="utf-8")


def dark_style():
    """The element of an SVG that exchanges its greys where the reader's browser is dark."""
    rules = ["text { fill: #e6e6e6 }"]  # what is black has no attribute
    for color, others in IN_THE_DARK.items():
        kinds = zip(("fill", "stroke"), others, strict=True)
        rules += [
            f'[style*="{kind}: {color}"] {{ {kind}: {other} !important }}' for kind, other in kinds
        ]
    return f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>\n"


def color_of(share):
    """The colour of a number between -1 and 1, and that of the ink for what is written on it."""
    return to_hex(BY_SIGN((share + 1) / 2)), INKS[int(abs(share) > 0.6)]


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
    axes.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle=corners, facecolor=color, edgecolor=DARK)
    )
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", size=size)


def cell(axes, x, y, width, height, text="", color="white", size=11, ink="black", **style):
    """Draw a rectangle whose lower left corner is (x, y), with a text in its centre."""
    axes.add_patch(
        plt.Rectangle((x, y), width, height, **{"facecolor": color, "edgecolor": DARK} | style)
    )
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
    style = {
        "arrowstyle": "-|>",
        "mutation_scale": 12,
        "color": DARK,
        "shrinkA": 0,
        "shrinkB": 0,
        "ls": linestyle,
    }
    axes.add_patch(FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={curve}", **style))
    middle = (np.add(start, end)) / 2
    shift, align = (0.08, "left") if side == "right" else (-0.08, "right")
    axes.text(middle[0] + shift, middle[1], text, ha=align, va="center", size=10, color=DARK)


def matrix(
    axes,
    x,
    y,
    values,
    side=0.5,
    form="{:g}",
    title="",
    *,
    texts=None,
    peak=None,
    width=None,
    size=10,
):
    """Draw a matrix of numbers, coloured by their sign; its upper left corner is (x, y).

    The number ``peak`` has the full colour, and ``width`` is that of a column, if it is not
    ``side``. ``texts`` are written in place of the numbers.
    """
    values = np.atleast_2d(values)
    peak, width = peak or abs(values).max() or 1.0, width or side
    for (row, column), value in np.ndenumerate(values):
        color, ink = color_of(np.clip(value / peak, -1, 1))
        text = number(value, form) if texts is None else texts[row][column]
        cell(axes, x + column * width, y - (row + 1) * side, width, side, text, color, size, ink)
    axes.text(x + values.shape[1] * width / 2, y + 0.12, title, ha="center", va="bottom")


def rung(axes, middle, low, length, down, up, peak, form="{:g}", width=0.42):
    """Beside an arrow that goes down the name and numbers of a value, beside one that goes up those
    of its gradient.
    """
    high = low + length
    arrow(axes, (middle - 0.5, high), (middle - 0.5, low))
    arrow(axes, (middle + 0.5, low), (middle + 0.5, high))
    beside_arrows(axes, middle, low + length / 2, down, up, peak, form, width)


def beside_arrows(axes, middle, y, down, up, peak, form="{:g}", width=0.42):
    """The names and numbers of a ``rung`` alone, around the height y."""
    side = 0.36
    for at, (name, values), sign in ((middle - 0.5, down, -1), (middle + 0.5, up, 1)):
        values = np.atleast_2d(values)
        size = values.shape[1] * width
        left = at - 0.1 - size if sign < 0 else at + 0.1
        matrix(axes, left, y + side / 2, values, side, form, peak=peak, width=width)
        name_at, align = (left - 0.08, "right") if sign < 0 else (left + size + 0.08, "left")
        axes.text(name_at, y, name, ha=align, va="center")


def number(value, form="{:g}"):
    """A number with a minus sign instead of a hyphen, and without one if it is rounded to 0."""
    text = form.format(value)
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")
