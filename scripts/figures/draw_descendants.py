"""Draw the figures of docs/descendants."""

import sys

from scripts.figures import drawing  # needs pip install -e .
from scripts.figures.drawing import chart, figure


@figure
def one_page_gpt():
    """The loss of docs/one_page_gpt.py in the run that the page shows, on 192 passages of each part of the text."""
    losses = {  # step: (of what it is trained on, of the last tenth)
        50: (2.532, 2.478),
        100: (2.140, 2.102),
        200: (1.687, 1.716),
        300: (1.525, 1.579),
        500: (1.394, 1.484),
        700: (1.328, 1.424),
        1000: (1.233, 1.395),
        1500: (1.141, 1.366),
        2000: (1.059, 1.355),
        2500: (0.997, 1.393),
        3000: (0.925, 1.423),
        3500: (0.863, 1.455),
        4000: (0.792, 1.524),
        4500: (0.738, 1.577),
        5000: (0.714, 1.604),
    }
    axes = chart("step", "loss per character")
    read, new = zip(*losses.values(), strict=True)
    axes.plot(list(losses), new, "s--", color="black", markersize=5, label="the last tenth, which it never reads")
    axes.plot(list(losses), read, "o-", color="black", markersize=5, label="the rest of the text")
    axes.set(ylim=(0, 2.7), xticks=range(0, 5001, 1000))
    axes.legend(frameon=False)


if __name__ == "__main__":
    sys.exit(drawing.main())
