"""Draw the figure of docs/guides/scale.md: the efficiency of many ranks, as predicted, measured and
published.
"""

import numpy as np

from scripts.bench.predict_ranks import (  # needs pip install -e .
    NETWORKS,
    PUBLISHED,
    measured,
    predict,
    range_of,
    strong,
)
from scripts.figures.drawing import MIDDLE, chart, figure  # needs pip install -e .

MARKS = {
    "VGG-16": ("s", 1.0),
    "Inception V3": ("^", 0.8),
    "ResNet-101": ("D", 1.25),
}  # and beside the number of hosts
COLORS = dict(zip(NETWORKS, ("#b05000", "#3070b0", "black"), strict=True))


@figure
def ranks_efficiency():
    """The throughput of a rank, relative to a process alone; bars are what the model says of
    published points.
    """
    axes = chart("ranks (logarithmic)", "efficiency, %")
    step, tokens, weak = measured()
    at = 2 ** np.linspace(0, 10, 101)
    for name, network in NETWORKS.items():
        style = {"color": COLORS[name], "linewidth": 1.5}
        axes.plot(at, [100 * predict(step, network, n).efficiency for n in at], label=name, **style)
        axes.plot(at, [100 * strong(step, tokens, network, n) for n in at], linestyle="--", **style)
    for n, efficiency in weak.items():
        axes.plot([n], [100 * efficiency], "o", color="black", label=f"measured, {n} ranks")
    for name, (mark, beside) in MARKS.items():
        there = [one for one in PUBLISHED if one.name == name]
        for one in there:
            axes.plot(
                [beside * one.n] * 2,
                [100 * share for share in range_of(one)],
                color=MIDDLE,
                linewidth=4,
            )
        style = {"color": "white", "markeredgecolor": "black", "label": f"{name}, published"}
        axes.plot(
            [beside * one.n for one in there],
            [100 * one.efficiency for one in there],
            mark,
            **style,
        )
    axes.set(xscale="log", ylim=(0, 104))
    axes.set_xticks(2 ** np.arange(0, 11, 2), [str(n) for n in 2 ** np.arange(0, 11, 2)])
    axes.minorticks_off()
    axes.legend(loc="lower left", frameon=False, fontsize=11)
