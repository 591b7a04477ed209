"""Draw the figures of part 2 of the book, the whole model, into docs/figures."""

from scripts.figures.drawing import LIGHT, figure, plt  # needs pip install -e .

from npformer import sinusoidal_encoding


@figure
def position_curves():
    """The vectors of six positions, as curves over the width."""
    encoding = sinusoidal_encoding(5000, 128)
    figure, rows = plt.subplots(
        6, 1, figsize=(5.9, 8.4), sharex=True, sharey=True, layout="constrained"
    )
    for axes, position in zip(rows, (0, 1, 10, 1000, 2500, 4999), strict=True):
        axes.plot(encoding[position], color="black", linewidth=0.9, marker=".", markersize=3)
        axes.set_title(f"position {position}", loc="left", size=12)
        axes.set(ylim=(-1.15, 1.15), yticks=[-1, 0, 1], xlim=(-1, 128))
        axes.grid(color=LIGHT)
    rows[-1].set(xlabel="index in the vector (D = 128)", xticks=[0, 32, 64, 96, 127])
    figure.supylabel("entry of the position vector", size=12)
