"""Draw the figures of the book, docs/figures/NAME.svg.

python scripts/figures/draw_figures.py
python scripts/figures/draw_figures.py --only masks,cache

Each is a function of a module in this folder that has the decorator ``figure``, or a list of shapes
in diagrams/. Coordinates are rounded to 0.001 points.
"""

import re
import sys
from importlib import import_module
from io import StringIO
from pathlib import Path

from npformer.commands.shared import command_line  # needs pip install -e .
from scripts.bench.options import some
from scripts.figures.diagrams import DIAGRAMS
from scripts.figures.drawing import DARK, FIGURES, LIGHT, MIDDLE, plt

PARTS = ["attention", "before", "curves", "gradients_of_attention", "gradients_of_layers", "lab"]
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
IN_THE_DARK = {  # what stands for white, black and the three greys: as an area, and as a line
    "#ffffff": ("#131416", "#131416"),
    "#000000": ("#e6e6e6", "#e6e6e6"),
    LIGHT: ("#303338", "#303338"),
    MIDDLE: ("#4c5057", "#7c8087"),
    DARK: ("#c8c8c8", "#c8c8c8"),
}


for part in PARTS:
    import_module(f"scripts.figures.{part}")  # which adds its figures
ALL = FIGURES | DIAGRAMS


@command_line
def main(*, only: some(ALL, "(default: all)") = None):
    """Draw figures."""
    for name in only or ALL:
        text = svg(ALL[name]).replace("</svg>", f"{dark_style()}</svg>")
        (FOLDER / f"{name}.svg").write_text(text, encoding="utf-8")


def svg(draw):
    """The SVG that a function draws."""
    drawing = StringIO()
    with plt.rc_context():  # what a figure sets is for this figure only
        draw()
        metadata = {"Date": None, "Creator": None}
        plt.savefig(drawing, format="svg", metadata=metadata, facecolor="white")
    plt.close()
    return re.sub(r"\d+\.\d{5,}", rounded, drawing.getvalue())


def rounded(number):
    """What is written in place of a coordinate."""
    return f"{float(number[0]):.3f}"


def dark_style():
    """The element of an SVG that exchanges its greys where the reader's browser is dark."""
    rules = ["text { fill: #e6e6e6 }"]  # what is black has no attribute
    for color, others in IN_THE_DARK.items():
        kinds = zip(("fill", "stroke"), others, strict=True)
        rules += [
            f'[style*="{kind}: {color}"] {{ {kind}: {other} !important }}' for kind, other in kinds
        ]
    return f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>\n"


if __name__ == "__main__":
    sys.exit(main())
