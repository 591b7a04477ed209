"""Draw the figures of docs/decoding."""

import numpy as np

from scripts.figures.drawing import DARK, LIGHT, MIDDLE, chart, figure  # needs pip install -e .

from npformer.decoding.sampling import draw as draw_tokens


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
