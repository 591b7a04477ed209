"""Draw the pictures that stand for the labs in the pages of the book, where a browser does not run
them.
"""

from textwrap import fill

import numpy as np

from scripts import make_playground  # needs pip install -e .
from scripts.figures.drawing import (  # needs pip install -e .
    DARK,
    box,
    canvas,
    figure,
    line,
    matrix,
    write,
    write_columns,
)

import npformer as nf

CONTENT = make_playground.lab()
SIDE, WIDTH = 0.42, 0.85  # of a cell
LEAST_WIDTH = 6.55  # of a picture: three answers, and 72 letters of the question, need so much


def question_named(bench, name):
    """The question, and the inputs before and after its change."""
    question = with_id(CONTENT["QUESTIONS"][bench], name)
    start = with_id(CONTENT["STARTS"][bench], question["start"])
    before = {name: np.array(x, float) for name, x in start.items() if isinstance(x, list)}
    after = {name: x.copy() for name, x in before.items()}
    for name, i, j, value in question["change"]:
        after[name][i, j] = value
    return question, start, before, after


def with_id(entries, name):
    """The entry of this id."""
    [entry] = [entry for entry in entries if entry["id"] == name]
    return entry


def lab(question, rows, columns):
    """Draw the question, the changed inputs and the numbers before the change, and three answers.

    ``rows`` are numbers by their names; the question asks about one number of the last row.
    """
    n = max(map(np.size, rows.values()))
    width = max(2.9 + n * WIDTH, LEAST_WIDTH)
    text = fill(question["story"], 72)
    more_lines = 0.22 * text.count("\n")
    height = 1.55 + more_lines + len(rows) * (SIDE + 0.12)
    canvas(width, height)
    write(0.15, height - 0.15, text, "right-below", size=12)
    top = height - 0.6 - more_lines
    write_columns(2.7, top - 0.05, WIDTH, columns, "", size=10, color=DARK)
    top -= 0.25
    for name, numbers in rows.items():
        matrix(2.7, top, np.round(numbers, 4), SIDE, width=WIDTH)
        write(2.6, top - SIDE / 2, name, "left", size=11)
        top -= SIDE + 0.12
    low = top + 0.12
    high = low + SIDE
    left = 2.7 + question["watch"][2] * WIDTH
    right = left + WIDTH
    corners = (left, high), (right, high), (right, low), (left, low), (left, high)
    line(*corners, color="#b35900", linewidth=3)
    for i, name in enumerate(("▼ falls", "stays the same", "▲ rises")):
        box(0.6 + i * 2.0, 0.15, 1.8, 0.4, name, size=11)


@figure
def lab_attention():
    """A longer query: what does the weight of ‘is’ do?"""
    question, start, before, after = question_named("attention", "longer")
    scale = 0.5  # 1/√4
    q = before["q"]
    k = before["k"]
    _, weights = nf.attention(q, k, before["v"])
    rows = {
        "scores before": scale * q @ k.T,
        "scores after the change": scale * after["q"] @ after["k"].T,
        "weights before": weights,
    }
    lab(question, rows, start["names"]["key"])


@figure
def lab_softmax():
    """Softmax is nearly certain: what does the gradient of the score do?"""
    question, _, before, after = question_named("softmax", "certain")
    x = before["x"]
    dy = before["dy"]
    y = nf.softmax(x)
    rows = {
        "scores x": x,
        "x after the change": after["x"],
        "dy": dy,
        "weights y before": y,
        "dx before": nf.softmax_backward(dy, y),
    }
    lab(question, rows, ["1", "2", "3"])


@figure
def lab_layer_norm():
    """A row becomes ten times as large: what does its gradient do?"""
    question, _, before, after = question_named("layer_norm", "tenfold")
    gain = before["gain"][0]
    x = before["x"]
    dy = before["dy"]
    y, mean, rstd = nf.layer_norm(x, gain, before["bias"][0])
    dx, *_ = nf.layer_norm_backward(dy, x, gain, mean, rstd)
    rows = {
        "row x": x,
        "x after the change": after["x"],
        "dy": dy,
        "y before and after": y,
        "dx before": dx,
    }
    lab(question, rows, ["1", "2", "3", "4"])
