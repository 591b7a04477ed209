"""Draw the figures of the pages about gradients up to the tiles of attention."""

from functools import partial

import numpy as np

from scripts.figures.drawing import (  # needs pip install -e .
    DARK,
    DASHED,
    LIGHT,
    MIDDLE,
    arrow,
    box,
    canvas,
    cell,
    figure,
    line,
    matrix,
    number,
    numbers,
    results,
    rung,
    write,
    write_columns,
    write_directions,
    write_rows,
)

import npformer as nf


@figure
def gradients_two_layers():
    """The graph of the example in idea.md: values go down on the left, gradients go up on the
    right.
    """
    canvas(7.0, 7.0)
    for i, quantity in enumerate(results("two_layers")):
        top = 5.85 - 1.35 * i
        rung(3.5, top, 0.7, quantity, peak=3, width=0.5)
        if quantity["then"]:
            box(2.5, top - 0.65, 2.0, 0.65, quantity["then"])
        if weight := quantity.get("weight"):
            height, width = 0.42 * np.array(np.shape(weight["value"]))
            name = weight["name"]
            away = 1.95 if width > 1 else 2.6
            middle = top - 0.32
            y = middle + height / 2
            style = {"side": 0.42, "peak": 3}
            matrix(3.5 - away - width, y, weight["value"], title=name, **style)
            matrix(3.5 + away, y, weight["gradient"], title=f"d{name}", **style)
            arrow((3.55 - away, middle), (2.5, middle))
            arrow((4.5, middle), (3.45 + away, middle))
    write_directions(3.5, 6.75)


@figure
def gradients_linear():
    """The three products of a linear map and its backward pass, with the numbers of linear.md."""
    canvas(5.0, 5.6)
    x = numbers("1 2 0; 0 -1 3")
    weight = numbers("1 0; 2 -1; 0 1")
    dy = numbers("1 2; 0 -1")
    products = [
        {"x": x, "W": weight, "x W": x @ weight},
        {"dy": dy, "Wᵀ": weight.T, "dx": dy @ weight.T},
        {"xᵀ": x.T, "dy": dy, "dW": x.T @ dy},
    ]
    for row, product in enumerate(products):
        middle = 4.5 - row * 1.85
        at = 0.25
        for sign, title in zip(("", "·", "="), product, strict=True):
            values = product[title]
            write(at, middle, sign, size=16)
            at += 0.2
            top = middle + len(values) * 0.21
            matrix(at, top, values, side=0.42, title=title, size=11)
            at += values.shape[1] * 0.42 + 0.2


@figure
def gradients_softmax():
    """The Jacobian of softmax for a flat, a middling and a peaked result: the peaked one is nearly
    0.
    """
    canvas(5.0, 2.55)
    for i, parts in enumerate(((1, 1, 1), (1, 2, 5), (1, 1, 98))):
        at = 0.1 + 1.68 * i
        y = np.array(parts) / sum(parts)
        jacobian = np.diag(y) - np.outer(y, y)
        matrix(at, 2.0, jacobian, side=0.48, form="{:.2f}", peak=0.25, size=9)
        write(at + 0.72, 2.12, f"y = {parts} / {sum(parts)}", "above", size=11)
        write(at + 0.72, 0.42, f"trace {np.trace(jacobian):.2f}", "below", size=11)


@figure
def gradients_attention():
    """The example of attention.md: its steps go down on the left, their gradients up on the right,
    and dashed arrows carry what is saved.
    """
    canvas(6.7, 8.3)
    q = numbers("2 0; 0 2")
    k = np.log(numbers("1 4; 2 4; 5 8"))
    v = numbers("8 0; 0 4; 8 8")
    dout = np.eye(2)
    scores = 0.5 * q @ k.T
    out, weights = nf.attention(q, k, v, scale=0.5)
    dweights = dout @ v.T
    dscores = nf.softmax_backward(dweights, weights)
    dq, dk, dv = nf.attention_backward(dout, q, k, v, weights, scale=0.5)
    log_k = [["0", "log 4"], ["log 2", "log 4"], ["log 5", "log 8"]]
    log_scores = [["0", "log 2", "log 5"], ["log 4", "log 4", "log 8"]]
    draw = partial(matrix, side=0.36, width=0.56)
    draw(0.2, 7.6, q, title="q")
    draw(1.6, 7.6, k, title="k", texts=log_k)
    draw(0.9, 5.55, scores, title="scores", texts=log_scores)
    draw(0.9, 3.95, weights, title="weights")
    draw(0.2, 2.35, v, title="v")
    draw(1.6, 1.0, out, title="out")
    draw(3.95, 7.6, dq, title="dq", form="{:.2f}")
    draw(5.35, 7.6, dk, title="dk")
    draw(4.65, 5.55, dscores, title="dscores")
    draw(4.65, 3.95, dweights, title="dweights")
    draw(5.35, 2.35, dv, title="dv")
    draw(3.95, 1.0, dout, title="dout")
    note = {"size": 10, "color": DARK}
    write(1.74, 8.12, "forward", weight="bold")
    write(5.49, 8.12, "backward", weight="bold")
    arrow((1.74, 6.45), (1.74, 5.85), "½ q kᵀ")
    arrow((1.74, 4.8), (1.74, 4.25), "softmax")
    arrow((2.16, 3.2), (2.16, 1.3))
    write(2.24, 1.6, "weights · v", "right", **note)
    arrow((1.35, 1.81), (2.12, 1.81))
    arrow((4.51, 1.3), (5.05, 3.2))
    write(4.84, 2.75, "dout · vᵀ", "left", **note)
    line((5.09, 0.64), (5.9, 0.64), linewidth=1)
    arrow((5.9, 0.64), (5.9, 1.24))
    write(5.72, 0.56, "weightsᵀ · dout", "below", **note)
    arrow((5.49, 4.25), (5.49, 4.8), "softmax, backward", side="left")
    arrow((5.49, 5.85), (5.49, 6.45), "½ dscores k and ½ dscoresᵀ q", side="left")
    saved = ("q, k", 2.75, 3.9, 7.24), ("weights", 2.6, 4.6, 3.59), ("v", 1.35, 4.72, 2.17)
    for name, start, end, y in saved:
        arrow((start, y), (end, y), linestyle=DASHED)
        write((start + end) / 2, y + 0.06, name, "above", **note)


@figure
def gradients_heads():
    """The numbers of heads.md: qkv and dqkv, whose columns are a query, a key and a value for each
    head.
    """
    canvas(5.0, 4.0)
    log_3 = np.log(3)
    qkv = numbers("2 3 0 0 4 0; 1 1 0 0 8 2")
    qkv[1, 2] = log_3
    dqkv = numbers("0 0 -1.5 -0.5 1.5 -0.5; 0 0 1.5 0.5 1.5 0.5")
    dqkv[1, 0] = 1.5 * log_3
    side = 0.7
    left = 0.75
    for top, values, names in ((3.25, qkv, ("q", "k", "v")), (1.2, dqkv, ("dq", "dk", "dv"))):
        texts = [[number(x, "{:.5g}") for x in row] for row in values]
        if values is qkv:
            texts[1][2] = "log 3"
        matrix(left, top, values, 0.5, texts=texts, width=side, size=11)
        write_columns(left, top + 0.08, side, ["head 1", "head 2"] * 3, "above", size=10)
        for part, name in enumerate(names):
            middle = left + (2 * part + 1) * side
            write(middle, top + 0.42, name, "above", size=13)
            start = left + 2 * part * side + 0.06
            end = left + (2 * part + 2) * side - 0.06
            line((start, top + 0.38), (end, top + 0.38))
        write_rows(left - 0.1, top, 0.5, ["position 0", "position 1"], size=9)


@figure
def gradients_tile_grid():
    """The scores of 8 queries and 8 keys in tiles of 2 × 2, with the causal mask: skipped, masked
    in part, whole.
    """
    canvas(5.0, 3.3)
    side = 0.34
    left = 0.75
    top = 2.9
    for query, key in np.ndindex(8, 8):
        tile_query = query // 2
        tile_key = key // 2
        text = ""
        if tile_key > tile_query:
            color = "white"
        elif tile_key < tile_query:
            color = LIGHT
        else:
            color = MIDDLE
            text = "×" if key > query else ""
        x = left + key * side
        y = top - (query + 1) * side
        cell(x, y, side, side, text, color, linewidth=0.5)
    right = left + 8 * side
    low = top - 8 * side
    for i in range(5):
        x = left + i * 2 * side
        y = top - i * 2 * side
        line((left, y), (right, y), linewidth=1.6)
        line((x, top), (x, low), linewidth=1.6)
    write(left + 4 * side, top + 0.1, "keys", "above", size=12)
    write(left - 0.12, top - 4 * side, "queries", "left", size=12, rotation=90)
    kinds = (2.3, LIGHT, "whole tile"), (1.6, MIDDLE, "masked\nin part"), (0.9, "white", "skipped")
    for y, color, text in kinds:
        cell(3.75, y - 0.15, 0.3, 0.3, color=color)
        write(4.12, y, text, "right", size=11)
    write(3.9, 0.4, "×", size=11)
    write(4.12, 0.4, "masked", "right", size=11)
