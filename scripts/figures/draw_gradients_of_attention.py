"""Draw the figures of the pages about gradients up to the tiles of attention."""

import sys

import numpy as np

from scripts.figures import drawing  # needs pip install -e .
from scripts.figures.drawing import (
    DARK,
    DASHED,
    LIGHT,
    MIDDLE,
    arrow,
    box,
    canvas,
    cell,
    figure,
    matrix,
    rung,
)


@figure
def gradients_two_layers():
    """The graph of the example in idea.md: values go down on the left, gradients go up on the
    right.
    """
    axes = canvas(7.0, 7.0)
    x, target = np.array([[1.0, 2.0]]), 0.5
    W1, w2 = np.array([[1.0, 0.0, -1.0], [1.0, -1.0, 2.0]]), np.array([[0.5], [1.0], [-1.0]])
    h = x @ W1
    a = np.maximum(h, 0)
    y = a @ w2
    dy = y - target
    da, dw2 = dy @ w2.T, a.T @ dy
    dh = np.where(h > 0, da, 0)
    # What goes down, what comes up, and the operation below, with its weight and its gradient.
    levels = [
        ("x", x, dh @ W1.T, "h = x W₁", ("W₁", W1, x.T @ dh)),
        ("h", h, dh, "a = relu(h)", None),
        ("a", a, da, "y = a w₂", ("w₂", w2, dw2)),
        ("y", y, dy, "L = ½ (y − ½)²", None),
        ("L", 0.5 * dy**2, np.ones((1, 1)), "", None),
    ]
    for i, (name, value, gradient, text, weight) in enumerate(levels):
        top = 5.85 - 1.35 * i
        rung(axes, 3.5, top, 0.7, (name, value), (f"d{name}", gradient), peak=3, width=0.5)
        if text:
            box(axes, 2.5, top - 0.65, 2.0, 0.65, text)
        if weight:
            name, value, gradient = weight
            height, width = np.array(value.shape) * 0.42
            away = 1.95 if width > 1 else 2.6
            matrix(
                axes, 3.5 - away - width, top - 0.32 + height / 2, value, 0.42, title=name, peak=3
            )
            matrix(
                axes, 3.5 + away, top - 0.32 + height / 2, gradient, 0.42, title=f"d{name}", peak=3
            )
            arrow(axes, (3.55 - away, top - 0.32), (2.5, top - 0.32))
            arrow(axes, (4.5, top - 0.32), (3.45 + away, top - 0.32))
    axes.text(2.9, 6.75, "forward", ha="right", va="center", weight="bold")
    axes.text(4.1, 6.75, "backward", ha="left", va="center", weight="bold")


@figure
def gradients_linear():
    """The three products of a linear map and its backward pass, with the numbers of linear.md."""
    axes = canvas(5.0, 5.6)
    x, weight = np.array([[1, 2, 0], [0, -1, 3]]), np.array([[1, 0], [2, -1], [0, 1]])
    dy = np.array([[1, 2], [0, -1]])
    products = [
        ("x", x, "W", weight, "x W", x @ weight),
        ("dy", dy, "Wᵀ", weight.T, "dx", dy @ weight.T),
        ("xᵀ", x.T, "dy", dy, "dW", x.T @ dy),
    ]
    for row, (left_name, left, right_name, right, name, result) in enumerate(products):
        middle, at = 4.5 - row * 1.85, 0.25
        for sign, title, values in (
            ("", left_name, left),
            ("·", right_name, right),
            ("=", name, result),
        ):
            axes.text(at, middle, sign, ha="center", va="center", size=16)
            at += 0.2
            top, width = middle + len(values) * 0.21, values.shape[1] * 0.42
            matrix(axes, at, top, values, side=0.42, title=title, size=11)
            at += width + 0.2


@figure
def gradients_softmax():
    """The Jacobian of softmax for a flat, a middling and a peaked result: the peaked one is nearly
    0.
    """
    axes = canvas(5.0, 2.55)
    for at, parts in ((0.1, (1, 1, 1)), (1.78, (1, 2, 5)), (3.46, (1, 1, 98))):
        y = np.array(parts) / sum(parts)
        jacobian = np.diag(y) - np.outer(y, y)
        matrix(axes, at, 2.0, jacobian, side=0.48, form="{:.2f}", peak=0.25, size=9)
        axes.text(at + 0.72, 2.12, f"y = {parts} / {sum(parts)}", ha="center", va="bottom", size=11)
        axes.text(
            at + 0.72, 0.42, f"trace {np.trace(jacobian):.2f}", ha="center", va="top", size=11
        )


@figure
def gradients_attention():
    """Attention and its backward pass: what each step saves, and what each gradient needs."""
    axes = canvas(5.0, 5.3)
    steps = [
        (3.9, "scores =\nscale · q kᵀ", "dq = scale · dscores k\ndk = scale · dscoresᵀ q", "q, k"),
        (2.35, "weights =\nsoftmax(scores)", "dscores = weights ·\n(dweights − mean)", "weights"),
        (0.8, "out =\nweights v", "dweights = dout vᵀ\ndv = weightsᵀ dout", "v, weights"),
    ]
    for y, forward, backward, saved in steps:
        box(axes, 0.1, y, 1.55, 0.85, forward, size=11)
        box(axes, 2.75, y, 2.15, 0.85, backward, size=11)
        arrow(axes, (1.7, y + 0.42), (2.7, y + 0.42), linestyle=DASHED)
        axes.text(2.2, y + 0.48, saved, ha="center", va="bottom", size=10)
    for y, value, gradient in (
        (4.75, "q, k", "dq, dk"),
        (3.2, "scores", "dscores"),
        (1.65, "weights", "dweights"),
    ):
        start = y + (0.3 if y > 4 else 0.7)
        arrow(axes, (0.85, start), (0.85, y), value)
        arrow(axes, (3.85, y), (3.85, start), gradient)
    arrow(axes, (0.85, 0.8), (0.85, 0.3), "out")
    arrow(axes, (3.85, 0.3), (3.85, 0.8), "dout")
    axes.text(0.85, 5.1, "forward", ha="center", size=12, weight="bold")
    axes.text(3.85, 5.1, "backward", ha="center", size=12, weight="bold")


@figure
def gradients_heads():
    """The numbers of heads.md: qkv and dqkv, whose columns are a query, a key and a value for each
    head.
    """
    axes = canvas(5.0, 4.0)
    qkv = [["2", "3", "0", "0", "4", "0"], ["1", "1", "log 3", "0", "8", "2"]]
    dqkv = [["0", "0", "−1.5", "−0.5", "1.5", "−0.5"], ["1.6479", "0", "1.5", "0.5", "1.5", "0.5"]]
    side, left = 0.7, 0.75
    for top, numbers, names in ((3.25, qkv, ("q", "k", "v")), (1.2, dqkv, ("dq", "dk", "dv"))):
        values = [
            [np.log(3) if text == "log 3" else float(text.replace("−", "-")) for text in row]
            for row in numbers
        ]
        matrix(axes, left, top, values, 0.5, texts=numbers, width=side, size=11)
        for part, name in enumerate(names):
            axes.text(
                left + (2 * part + 1) * side, top + 0.42, name, ha="center", va="bottom", size=13
            )
            ends = [left + 2 * part * side + 0.06, left + (2 * part + 2) * side - 0.06]
            axes.plot(ends, [top + 0.38] * 2, color=DARK)
            for head in range(2):
                at = left + (2 * part + head + 0.5) * side
                axes.text(at, top + 0.08, f"head {head + 1}", ha="center", va="bottom", size=10)
        for row in range(2):
            axes.text(
                left - 0.1,
                top - row * 0.5 - 0.25,
                f"position {row}",
                ha="right",
                va="center",
                size=9,
            )


@figure
def gradients_tiles():
    """One query and four keys in two blocks, with the numbers of tiles.md."""
    axes = canvas(5.0, 4.1)
    exponentials, values = (1, 2, 4, 1), (8, 4, 2, 16)
    for key, (e, v) in enumerate(zip(exponentials, values, strict=True)):
        x = 1.3 + key * 0.85 + (0.15 if key > 1 else 0)
        box(axes, x, 3.05, 0.75, 0.4, "0" if e == 1 else f"log {e}", size=11)
        box(axes, x, 2.55, 0.75, 0.4, f"{v}", color="white", size=11)
    for y, text in ((3.25, "scores"), (2.75, "values")):
        axes.text(1.15, y, text, ha="right", va="center", size=11)
    for x, text in ((2.1, "first block"), (3.95, "second block")):
        axes.text(x, 3.6, text, ha="center", size=12, weight="bold")
    rows = [
        ("peak", "log 2", "log 4"),
        ("shrink", "0", "½"),
        ("total", "½ + 1 = 1.5", "½·1.5 + 1 + ¼ = 2"),
        ("gathered", "½·8 + 1·4 = 8", "½·8 + 1·2 + ¼·16 = 10"),
        ("quotient", "8 / 1.5 = 5.33", "10 / 2 = 5"),
    ]
    for at, (name, first, second) in enumerate(rows):
        y = 2.1 - 0.42 * at
        axes.text(1.0, y, name, ha="right", va="center", size=11)
        axes.text(2.05, y, first, ha="center", va="center", size=10.5)
        axes.text(4.02, y, second, ha="center", va="center", size=10.5)
        axes.plot([0.1, 4.95], [y - 0.21, y - 0.21], color=MIDDLE, linewidth=0.8)
    axes.plot([0.1, 4.95], [2.31, 2.31], color=MIDDLE, linewidth=0.8)
    axes.plot([3.03, 3.03], [0.21, 3.5], color=DARK, linewidth=0.8, linestyle=DASHED)


@figure
def gradients_tile_grid():
    """The scores of 8 queries and 8 keys in tiles of 2 × 2, with the causal mask: skipped, masked
    in part, whole.
    """
    axes = canvas(5.0, 3.3)
    side, left, top = 0.34, 0.75, 2.9
    for query, key in np.ndindex(8, 8):
        tile_query, tile_key = query // 2, key // 2
        color = "white" if tile_key > tile_query else LIGHT if tile_key < tile_query else MIDDLE
        text = "×" if tile_key == tile_query and key > query else ""
        cell(
            axes,
            left + key * side,
            top - (query + 1) * side,
            side,
            side,
            text,
            color,
            linewidth=0.5,
        )
    for line in range(5):
        at = line * 2 * side
        axes.plot([left, left + 8 * side], [top - at, top - at], color=DARK, linewidth=1.6)
        axes.plot([left + at, left + at], [top, top - 8 * side], color=DARK, linewidth=1.6)
    axes.text(left + 4 * side, top + 0.1, "keys", ha="center", va="bottom", size=12)
    axes.text(left - 0.12, top - 4 * side, "queries", ha="right", va="center", size=12, rotation=90)
    for y, color, text in (
        (2.3, LIGHT, "whole tile"),
        (1.6, MIDDLE, "masked\nin part"),
        (0.9, "white", "skipped"),
    ):
        cell(axes, 3.75, y - 0.15, 0.3, 0.3, color=color)
        axes.text(4.12, y, text, ha="left", va="center", size=11)
    axes.text(3.9, 0.4, "×", ha="center", va="center", size=11)
    axes.text(4.12, 0.4, "masked", ha="left", va="center", size=11)


if __name__ == "__main__":
    sys.exit(drawing.main())
