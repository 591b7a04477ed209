"""Draw the figures of docs/decoding."""

import sys

import numpy as np

from scripts.figures import drawing  # needs pip install -e .
from scripts.figures.drawing import DARK, LIGHT, MIDDLE, arrow, box, canvas, cell, chart, figure

from npformer.decoding.sampling import draw as draw_tokens


@figure
def cache():
    """Three rows that share entries of the table of keys and values."""
    axes = canvas(6.4, 4.6)
    axes.text(0.2, 4.25, "kv: the keys and values of tokens 1, 5, 6, …", size=14)
    tokens, colors = ("1", "", "", "5", "6", "", "7", "8", "9"), 6 * [LIGHT] + 3 * [MIDDLE]
    width = 0.66
    for i, (token, color) in enumerate(zip(tokens, colors, strict=True)):
        cell(axes, 0.2 + i * width, 3.4, width, 0.45, token, color if token else "white", size=13)
        axes.text(0.2 + (i + 0.5) * width, 3.92, str(i), ha="center", size=11, color=DARK)
    for i in range(3):
        axes.text(
            0.2 + (3 * i + 1.5) * width, 3.08, f"step {i + 1}", ha="center", size=12, color=DARK
        )
        axes.plot(
            np.array([3 * i + 0.1, 3 * i + 2.9]) * width + 0.2,
            [3.32, 3.32],
            color=DARK,
            linewidth=1.5,
        )
    axes.text(0.2, 2.55, "at: indices of the entries, one line per row", size=14)
    steps = [[[0]], [[0, 3], [0, 4]], [[0, 3, 6], [0, 3, 7], [0, 4, 8]]]
    lefts = 0.3, 1.75, 4.0
    for left, rows, n in zip(lefts, steps, (1, 2, 3), strict=True):
        for r, row in enumerate(rows):
            for i, entry in enumerate(row):
                color = MIDDLE if i == 2 else LIGHT
                cell(axes, left + 0.5 * i, 1.85 - 0.55 * r, 0.5, 0.45, str(entry), color, size=13)
        axes.text(left + 0.25 * n, 0.15, f"step {n}", ha="center", size=13)
    parents = [((0.8, 2.08), (1.75, 2.08)), ((0.8, 2.08), (1.75, 1.53))]
    parents += [
        ((2.75, 2.08), (4.0, 2.08)),
        ((2.75, 2.08), (4.0, 1.53)),
        ((2.75, 1.53), (4.0, 0.98)),
    ]
    for start, end in parents:
        arrow(axes, start, end)


@figure
def beam_search():
    """The tree of the page, with the prefixes that are kept and the finished hypotheses."""
    axes = canvas(6.4, 5.2)
    xs, height = (0.1, 1.5, 3.15, 4.9), 0.62
    nodes = {  # text: (what it continues, column, y, what becomes of it)
        "start": (None, 0, 2.4, "kept"),
        "A\n0.5": ("start", 1, 3.4, "kept"),
        "B\n0.4": ("start", 1, 1.4, "kept"),
        "end\n0.1": ("start", 1, 0.3, "dropped"),
        "A A\n0.30": ("A\n0.5", 2, 4.1, "kept"),
        "A B\n0.05": ("A\n0.5", 2, 3.25, "kept"),
        "A end\n0.15": ("A\n0.5", 2, 2.4, "dropped"),
        "B end\n0.36": ("B\n0.4", 2, 1.4, "finished"),
        "A A end\n0.24": ("A A\n0.30", 3, 4.1, "finished"),
        "A B end\n0.045": ("A B\n0.05", 3, 3.25, "finished"),
    }
    widths = 0.95, 0.95, 1.15, 1.4
    colors = {"kept": LIGHT, "finished": MIDDLE, "dropped": "white"}
    for text, (_, column, y, state) in nodes.items():
        box(axes, xs[column], y, widths[column], height, text, colors[state], size=13)
    for start, column, y, _ in nodes.values():
        if start:
            _, before, y_before, _ = nodes[start]
            arrow(
                axes,
                (xs[before] + widths[before], y_before + height / 2),
                (xs[column], y + height / 2),
            )
    for i, (state, color) in enumerate(colors.items()):
        cell(axes, 2.9 + 1.15 * i, 0.42, 0.25, 0.25, color=color)
        axes.text(3.2 + 1.15 * i, 0.545, state, va="center", size=13)
    for i in range(3):
        axes.text(
            xs[i + 1] + widths[i + 1] / 2, 4.9, f"step {i + 1}", ha="center", size=13, color=DARK
        )


@figure
def sampling():
    """Four probabilities after temperature, top-k and top-p."""
    axes = chart("", "probability")
    p, u = np.array([0.5, 0.25, 0.15, 0.1]), (np.arange(10_000) + 0.5) / 10_000
    kinds = {
        "T = 0.5": {"temperature": 0.5},
        "T = 1": {},
        "T = 2": {"temperature": 2.0},
        "top-k 2": {"top_k": 2},
        "top-p 0.8": {"top_p": 0.8},
    }
    for i, options in enumerate(kinds.values()):
        tokens = draw_tokens(np.tile(np.log(p), (len(u), 1)), u, **options)
        shares = np.bincount(tokens, minlength=4) / len(u)
        colors = [DARK, "#808080", MIDDLE, LIGHT]
        axes.bar(i + 0.2 * (np.arange(4) - 1.5), shares, 0.2, color=colors, edgecolor=DARK)
    axes.set_xticks(range(len(kinds)), list(kinds))


if __name__ == "__main__":
    sys.exit(drawing.main())
