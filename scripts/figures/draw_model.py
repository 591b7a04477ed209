"""Draw the figures of part 2 of the book, the whole model, into docs/figures."""

import sys

import numpy as np

from scripts.figures import drawing  # needs pip install -e .
from scripts.figures.drawing import (
    DARK,
    LIGHT,
    MIDDLE,
    arrow,
    box,
    canvas,
    cell,
    figure,
    label,
    plt,
)

from npformer import sinusoidal_encoding, softmax

HEIGHT, GAP = 0.42, 0.4


def sublayers(axes, x, width, y, length, names, side):
    """Sublayers above each other, each with its residual connection at one side; return the y of
    the upper edge.
    """
    center = x + width / 2
    at_left, shape = side > 0, f"(B, {length}, D)"
    options = {"side": "left"} if at_left else {}
    start = y - 0.62
    for name in names:
        arrow(axes, (center, start), (center, y))
        align, shift = ("right", -0.08) if at_left else ("left", 0.08)
        axes.text(
            center + shift, y - GAP / 2 - 0.02, shape, ha=align, va="center", size=10, color=DARK
        )
        box(axes, x, y, width, HEIGHT, name, color="white")
        norm = y + HEIGHT + GAP
        arrow(axes, (center, y + HEIGHT), (center, norm), shape, **options)
        box(axes, x, norm, width, HEIGHT, "add, then layer norm", size=11)
        low, high = y - GAP / 2 - 0.04, norm + HEIGHT / 2
        axes.plot([center, x + side, x + side], [low, low, high], color=DARK)
        arrow(axes, (x + side, high), (x if side < 0 else x + width, high))
        start = norm + HEIGHT
        y = start + GAP
    return start


@figure
def architecture():
    """Encoder and decoder, with the shape on every arrow."""
    axes = canvas(5.9, 8.95)
    left, right, width = 0.5, 3.35, 2.05
    encoder, decoder = left + width / 2, right + width / 2

    embed_at = 0.62
    for center, length, name in ((encoder, "S", "source ids"), (decoder, "T", "target ids so far")):
        axes.text(center, 0.12, name, ha="center", va="center")
        arrow(axes, (center, 0.26), (center, embed_at), f"(B, {length})")
        text = "embedding × √D\n+ position"
        box(axes, center - width / 2, embed_at, width, 0.62, text, color=MIDDLE, size=11)
    first = embed_at + 0.62 + 0.62

    top = sublayers(axes, left, width, first, "S", ["self-attention", "feed-forward"], side=-0.22)
    names = ["self-attention, causal", "cross-attention", "feed-forward"]
    last = sublayers(axes, right, width, first, "T", names, side=width + 0.22)
    for x, end in ((left - 0.36, top), (right - 0.1, last)):
        y = embed_at + 0.62 + 0.2
        size = end + 0.12 - y
        cell(axes, x, y, width + 0.46, size, color="none", linestyle="--")
        axes.text(x + 0.06, end + 0.16, "N layers", va="bottom", size=11)

    # the memory goes to the cross-attention of every decoder layer
    cross = first + 2 * (HEIGHT + GAP) + HEIGHT / 2
    turn = 2.84
    y = top + 0.62
    axes.plot([encoder, encoder, turn, turn], [top, y, y, cross], color=DARK)
    arrow(axes, (turn, cross), (right, cross))
    axes.text(encoder + 0.08, y + 0.06, "memory (B, S, D)", size=10, color=DARK, va="bottom")
    axes.text(turn + 0.06, cross + 0.06, "K, V", ha="left", va="bottom", size=10, weight="bold")
    axes.text(
        decoder - 0.76,
        cross - HEIGHT / 2 - GAP / 2 - 0.02,
        "Q",
        ha="right",
        va="center",
        size=10,
        weight="bold",
    )

    y = last
    shape = "(B, T, D)"
    for text in ("linear, D → V", "softmax"):
        arrow(axes, (decoder, y), (decoder, y + 0.5), shape)
        y += 0.5
        box(axes, right, y, width, HEIGHT, text, color=MIDDLE)
        y, shape = y + HEIGHT, "(B, T, V) logits"
    arrow(axes, (decoder, y), (decoder, y + 0.4), "(B, T, V)")
    axes.text(
        decoder,
        y + 0.55,
        "p(next token | earlier ones, source)",
        ha="center",
        va="center",
        size=10.5,
    )


@figure
def one_word():
    """The new vector of the second of five words: a weighted sum of the values of all, then
    feed-forward.
    """
    axes = canvas(5.9, 5.55)
    words = ["that", "is", "a", "good", "idea"]
    weights = softmax(np.array([3, 2, 1, 0, 2]) / np.sqrt(3)).round(2)  # of the scores on the page
    at = 0.75 + 1.1 * np.arange(5)
    target = at[1]
    for x, word, weight, digit in zip(at, words, weights, "₁₂₃₄₅", strict=True):
        axes.text(x, 0.28, word, ha="center", va="center", size=13)
        arrow(axes, (x, 0.44), (x, 0.72))
        box(axes, x - 0.4, 0.72, 0.8, 0.42, f"e{digit}", color=MIDDLE)
        arrow(axes, (x, 1.14), (x, 1.48))
        box(axes, x - 0.4, 1.48, 0.8, 0.42, f"v{digit}", color="white")
        axes.plot(
            [x, target], [1.9, 2.78], color=DARK, linewidth=0.5 + 9 * weight, solid_capstyle="butt"
        )
        label(axes, x + 0.3 * (target - x), 1.9 + 0.3 * 0.88, f"{weight:.2f}")
    box(axes, target - 0.9, 2.78, 1.8, 0.42, "z₂ = Σⱼ a(2, j) vⱼ", color=LIGHT)
    arrow(axes, (target, 3.2), (target, 3.46))
    box(axes, target - 0.9, 3.46, 1.8, 0.42, "x₂ = norm(e₂ + z₂)", size=11)
    box(axes, 0.08, 3.46, 0.5, 0.42, "e₂", color=MIDDLE)
    arrow(axes, (0.58, 3.67), (target - 0.9, 3.67))
    arrow(axes, (target, 3.88), (target, 4.3))
    box(axes, target - 0.9, 4.3, 1.8, 0.42, "feed-forward", color="white")
    arrow(axes, (target, 4.72), (target, 5.0))
    box(axes, target - 1.3, 5.0, 2.6, 0.42, "e₂′ = norm(x₂ + FFN(x₂))", size=11)
    side = target + 1.1
    axes.plot([target, side], [4.08, 4.08], color=DARK)
    arrow(axes, (side, 4.08), (side, 5.0))
    axes.text(side + 0.1, 4.5, "x₂", size=11, va="center")
    note = ["a(2, j): how much word 2", "attends to word j;", "a(2, 1) + … + a(2, 5) = 1"]
    axes.text(3.55, 3.35, "\n".join(note), size=11, va="center")


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


@figure
def parallel_and_serial():
    """In training all positions at once; in decoding one after the other."""
    axes = canvas(5.9, 5.75)
    given, wanted = ["begin", "le", "chat", "dort"], ["le", "chat", "dort", "end"]
    axes.text(
        0.1,
        5.57,
        "training: one pass; the inputs are the true target",
        size=12,
        va="center",
        weight="bold",
    )
    at = 0.8 + 1.43 * np.arange(4)
    box(axes, 0.2, 4.2, 5.5, 0.5, "decoder (causal mask)")
    for x, below, above in zip(at, given, wanted, strict=True):
        axes.text(x, 3.73, below, ha="center", va="center")
        arrow(axes, (x, 3.88), (x, 4.2))
        arrow(axes, (x, 4.7), (x, 5.02))
        axes.text(x, 5.17, above, ha="center", va="center")
    axes.text(
        0.1,
        3.2,
        "decoding: one pass for each token it generates",
        size=12,
        va="center",
        weight="bold",
    )
    line = 0.25  # each pass reads all tokens so far, written below each other
    for i, (x, above) in enumerate(zip(at, wanted, strict=True)):
        box(axes, x - 0.55, 1.83, 1.1, 0.5, f"pass {i + 1}")
        for row, word in enumerate(given[: i + 1]):
            axes.text(x, 1.36 - line * row, word, ha="center", va="center")
        arrow(axes, (x, 1.51), (x, 1.83))
        arrow(axes, (x, 2.33), (x, 2.65))
        axes.text(x, 2.8, above, ha="center", va="center")
        if i < 3:
            bend, newest = x + 0.715, 1.36 - line * (i + 1)
            axes.plot(
                [x + 0.3, bend, bend, x + 1.02],
                [2.8, 2.8, newest, newest],
                color=DARK,
                linestyle=":",
            )
            arrow(axes, (x + 1.02, newest), (x + 1.18, newest))
    axes.text(0.1, 0.2, "time →", size=11, va="center", color=DARK)


if __name__ == "__main__":
    sys.exit(drawing.main())
