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
)

import npformer as nf

CONTENT = make_playground.lab()
SIDE, WIDTH = 0.42, 0.85  # of a cell
LEAST_WIDTH = 6.55  # of a picture: three answers, and 72 letters of the question, need so much


def question_named(bench, name):
    """The question, and the inputs before and after its change."""
    [question] = [question for question in CONTENT["QUESTIONS"][bench] if question["id"] == name]
    [start] = [start for start in CONTENT["STARTS"][bench] if start["id"] == question["start"]]
    before = {name: np.array(x, float) for name, x in start.items() if isinstance(x, list)}
    after = {name: x.copy() for name, x in before.items()}
    for name, i, j, value in question["change"]:
        after[name][i, j] = value
    return question, start, before, after


def lab(question, rows, columns):
    """Draw the question, the changed inputs and the numbers before the change, and three answers.

    ``rows`` are (name, numbers, the column that is asked about).
    """
    n = max(np.size(numbers) for _, numbers, _ in rows)
    width = max(2.9 + n * WIDTH, LEAST_WIDTH)
    text = fill(question["story"], 72)
    height = 1.55 + 0.22 * text.count("\n") + len(rows) * (SIDE + 0.12)
    canvas(width, height)
    write(0.15, height - 0.15, text, "right-below", size=12)
    top = height - 0.6 - 0.22 * text.count("\n")
    for j, name in enumerate(columns):
        write(2.7 + (j + 0.5) * WIDTH, top - 0.05, name, size=10, color=DARK)
    top -= 0.25
    for name, numbers, watched in rows:
        matrix(2.7, top, np.round(numbers, 4), SIDE, width=WIDTH)
        write(2.6, top - SIDE / 2, name, "left", size=11)
        if watched is not None:
            left = 2.7 + watched * WIDTH
            right = left + WIDTH
            low = top - SIDE
            corners = (left, top), (right, top), (right, low), (left, low), (left, top)
            line(*corners, color="#b35900", linewidth=3)
        top -= SIDE + 0.12
    for i, name in enumerate(("▼ falls", "stays the same", "▲ rises")):
        box(0.6 + i * 2.0, 0.15, 1.8, 0.4, name, size=11)


@figure
def lab_attention():
    """A longer query: what does the weight of ‘is’ do?"""
    question, start, before, after = question_named("attention", "longer")
    scale = 0.5  # 1/√4
    _, weights = nf.attention(before["q"], before["k"], before["v"])
    rows = [
        ("scores before", scale * before["q"] @ before["k"].T, None),
        ("scores after the change", scale * after["q"] @ after["k"].T, None),
        ("weights before", weights, question["watch"][2]),
    ]
    lab(question, rows, start["names"]["key"])


@figure
def lab_softmax():
    """Softmax is nearly certain: what does the gradient of the score do?"""
    question, _, before, after = question_named("softmax", "certain")
    y = nf.softmax(before["x"])
    rows = [
        ("scores x", before["x"], None),
        ("x after the change", after["x"], None),
        ("dy", before["dy"], None),
        ("weights y before", y, None),
        ("dx before", nf.softmax_backward(before["dy"], y), question["watch"][2]),
    ]
    lab(question, rows, ["1", "2", "3"])


@figure
def lab_layer_norm():
    """A row becomes ten times as large: what does its gradient do?"""
    question, _, before, after = question_named("layer_norm", "tenfold")
    gain = before["gain"][0]
    y, mean, rstd = nf.layer_norm(before["x"], gain, before["bias"][0])
    dx = nf.layer_norm_backward(before["dy"], before["x"], gain, mean, rstd)[0]
    rows = [
        ("row x", before["x"], None),
        ("x after the change", after["x"], None),
        ("dy", before["dy"], None),
        ("y before and after", y, None),
        ("dx before", dx, question["watch"][2]),
    ]
    lab(question, rows, ["1", "2", "3", "4"])
