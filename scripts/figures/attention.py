"""Draw the figures of part 1 of the book, docs/attention."""

import itertools

import numpy as np

from scripts.figures.drawing import (  # needs pip install -e .
    DARK,
    LIGHT,
    MIDDLE,
    arrow,
    box,
    canvas,
    cell,
    figure,
    label,
    line,
    matrix,
    node,
    numbers,
    panels,
    plt,
    results,
    write,
    write_columns,
    write_rows,
    zero_lines,
)

import npformer as nf

WORDS = ("Attention", "is", "all", "you", "need")
X = numbers("0 2 0 0; 0 1 1 0; 0 0 0 1; 0 0 2 0; 1 0 1 0")
Q = X @ numbers("1 0 0 0; 0 1 0 0; 0 1 0 1; 0 0 1 0")
K = X @ numbers("0 0 1 0; 0 1 0 0; 0 0 0 1; 1 0 0 0")
V = X @ numbers("0 0 0 1; 1 0 0 0; 0 0 1 0; 0 1 0 1")


@figure
def reversed_word():
    """The attention of a trained model that reverses a word: start.md has the lines that trained
    it.
    """
    data = results("reversed_word")
    canvas(6.0, 5.6)
    side = 0.42
    left = 1.15
    top = 4.75
    shown = lambda weight: f"{weight:.1f}"[1:] if weight >= 0.05 else ""
    texts = [list(map(shown, row)) for row in data["weights"]]
    matrix(left, top, data["weights"], side, texts=texts, peak=1)
    write_columns(left, top + 0.1, side, data["read"], size=14)
    write_rows(left - 0.12, top, side, data["written"], size=14)
    write(left + 5.5 * side, top + 0.5, "the word that it reads", "on")
    write(0.45, top - 5.5 * side, "what it writes, from top to bottom", rotation=90)


@figure
def soft_dictionary():
    """The weights of a dictionary and of a soft dictionary."""
    values = np.array([9, 2, 3])
    names = ["computer\nvalue 9", "dog\nvalue 2", "cat\nvalue 3"]
    similarities = {"is_same(dog)": [0, 1, 0], "how_similar(puppy)": [0.1, 0.9, 0.7]}
    both = panels(1, 2, width=5.4, height=2.9, sharey=True)
    for panel, title in zip(both, similarities, strict=True):
        similarity = np.array(similarities[title])
        weights = similarity / similarity.sum()
        bars = panel.bar(names, weights, facecolor=MIDDLE, edgecolor=DARK)
        panel.bar_label(bars, fmt="%.3f", padding=2, size=11)
        panel.set_title(f"{title}\nresult {weights @ values:.3f}", size=12)
        panel.tick_params("x", length=0, labelsize=10)
        panel.set_ylim(0, 1.15)
    both[0].set_ylabel("weight")


@figure
def word_vectors():
    """Keys, query and answer as arrows in a plane."""
    query = np.array([0.6, 0.8])
    keys = numbers("0.6 -0.8; 1.6 1.2; 0 1")
    [scores] = nf.reference.cosine_score(query[None], keys)
    answer = nf.softmax(scores) @ keys
    axes = panels(1, width=4.6, height=4.8)
    for key in keys:
        arrow((0, 0), key)
    for vector, style in (query, "--"), (answer, ":"):
        style = {"arrowstyle": "-|>", "ls": style, "lw": 2, "color": "black"}
        axes.annotate("", vector, (0, 0), arrowprops=style)
    names = {
        "computer": keys[0] + (0.06, -0.12),
        "dog": keys[1] + (-0.12, 0.06),
        "cat": keys[2] + (-0.27, -0.02),
        "puppy\n(dashed)": query + (-0.48, 0.1),
        "answer\n(dotted)": answer + (-0.13, 0.07),
    }
    for name, place in names.items():
        weight = "bold" if "(" in name else "normal"
        write(*place, name, "right-above", weight=weight)
    axes.set(xlim=(-0.3, 1.9), ylim=(-1.0, 1.5), aspect="equal")
    axes.set(xlabel="component 1", ylabel="component 2")
    zero_lines(axes)


@figure
def attention_is():
    """One word attends to five words: thicker arrows for larger weights."""
    weights = nf.attention(Q, K, V)[1][1]
    canvas(5.4, 3.5)
    box(1.3, 2.75, 2.8, 0.55, "out₂ = Σ a₂ⱼ vⱼ", color="white")
    for j, (word, weight) in enumerate(zip(WORDS, weights, strict=True)):
        x = 0.06 + 1.065 * j
        color = MIDDLE if word == "is" else LIGHT
        box(x, 0.65, 1.0, 0.45, word, color)
        write(x + 0.5, 0.5, f"word {j + 1}", "below", size=11)
        start = np.array([x + 0.5, 1.1])
        end = np.array([1.7 + 0.5 * j, 2.75])
        style = {"arrowstyle": "-|>", "lw": 0.6 + 8 * weight, "color": DARK, "mutation_scale": 12}
        plt.annotate("", end, start, arrowprops=style)
        on_arrow = start + 0.42 * (end - start)
        label(*on_arrow, f"{weight:.2f}", size=11)
    write(0.06, 2.2, "weight a₂ⱼ", "right-on", size=11)
    write(2.7, 0.1, "the query is that of “is”", "on", size=11)


@figure
def words_and_layers():
    """Five words and the rows of their vectors: one node for each word and layer, and what z(1, 2)
    is computed from.
    """
    canvas(5.9, 4.3)
    at = 1.55 + 0.95 * np.arange(5)
    rows = (0.95, 2.25, 3.55)
    names = ("layer 0:\nembeddings", "layer 1", "layer 2")
    for layer, (y, name) in enumerate(zip(rows, names, strict=True)):
        write(0.08, y, name, "right", size=11)
        for j, x in enumerate(at, start=1):
            dark = layer == 0 or (layer, j) == (1, 2)
            node(x, y, f"z({layer}, {j})", 0.35, MIDDLE if dark else "white", size=10)
    for low, start, end in itertools.product(rows[:2], at, at):
        style = {"color": MIDDLE, "lw": 0.5, "zorder": 0}
        if low == rows[0] and end == at[1]:
            style = {"color": DARK, "lw": 2.2, "zorder": 1}
        line((start, low + 0.35), (end, low + 0.95), **style)
    for j, x in enumerate(at, start=1):
        beside = x + 0.3 * (at[1] - x)
        label(beside, rows[0] + 0.53, f"a(2, {j})", size=9, pad=1)
    for x, word in zip(at, WORDS, strict=True):
        write(x, 0.12, word)
        arrow((x, 0.27), (x, 0.6))


@figure
def one_head():
    """Scores, weights and output of the sentence."""
    out, weights = nf.attention(Q, K, V)
    canvas(5.4, 6.3)
    side = 0.42
    title_above = 0.38
    for y, square, form, title in (
        (5.55, Q @ K.T, "{:.0f}", "scores q kᵀ"),
        (2.45, weights, "{:.2f}", "weights = softmax(q kᵀ / 2)"),
    ):
        matrix(1.0, y, square, side, form)
        write(2.05, y + title_above, title, "on")
        words = [f"{word} {i}" for i, word in enumerate(WORDS, start=1)]
        write_rows(0.92, y, side, words, size=11)
        write_columns(1.0, y + 0.08, side, range(1, 6), size=10)
    for y, rows, form, title in (
        (5.55, V, "{:.0f}", "v"),
        (2.45, out, "{:.2f}", "out = weights · v"),
    ):
        matrix(3.45, y, rows, side, form, peak=V.max())
        write(4.29, y + title_above, title, "on")
    text = "rows on the left: queries, columns: keys; the larger the number, the darker"
    write(2.7, 0.06, text, "on", size=10)


@figure
def two_heads():
    """What each of two heads computes for "is", and how W_o mixes what they give, with the numbers
    of heads.md.
    """
    w_o = numbers("1 0 0 1; 0 1 0 0; 0 0 1 0; 0 1 0 1")
    side = 0.36
    width = 0.46
    canvas(6.6, 7.1)
    style = {"side": side, "width": width, "peak": 2, "size": 11}
    fine = style | {"form": "{:.2f}"}
    outs = []
    for head, (x, name) in enumerate(((1.1, "head 1"), (3.85, "head 2"))):
        columns = slice(2 * head, 2 * head + 2)
        query = Q[1, columns]
        keys = K[:, columns]
        values = V[:, columns]
        out, weights = nf.attention(query[None], keys, values)
        outs.append(out)
        write(x + 1.32, 6.85, name, weight="bold")
        matrix(x, 6.6, query, **style)
        arrow((x + width, 6.6 - side), (x + width, 5.92))
        write(x + width + 0.1, 6.09, "· keys / √2, then softmax", "right", size=10)
        matrix(x, 5.6, keys, title="keys", **style)
        matrix(x + 1.06, 5.6, weights.T, title="weights", **fine | {"peak": 1})
        right = x + 1.66
        middle = right + width
        matrix(right, 5.6, values, title="values", **style)
        arrow((middle, 5.6 - 5 * side), (middle, 3.5))
        matrix(right, 3.5, out, **fine)
        end = 2.76 + (2 * head + 1) * width
        arrow((middle, 3.5 - side), (end, 2.72))
    write(1.0, 6.6 - side / 2, "query of “is”", "left", size=11)
    write_rows(1.0, 5.6, side, WORDS, size=11)
    write(2.6, 3.5 - side / 2, "weights · values", "left", size=11)
    heads = np.concatenate(outs, axis=-1)
    write(2.6, 2.72 - side / 2, "side by side", "left", size=11)
    matrix(2.76, 2.72, heads, **fine)
    write(2.76 + 2 * width, 2.2, "each times a row of W_o", size=11)
    matrix(2.76, 2.02, w_o, **style)
    factors = [f"{value:.2f} ·" for value in heads[0]]
    write_rows(2.6, 2.02, side, factors, size=11)
    added = ["what head 1 adds", "what head 2 adds"]
    write_rows(4.75, 2.02, 2 * side, added, "right", size=11)
    write(2.6, 0.28, "the sum: y of “is”", "left", size=11)
    matrix(2.76, 0.28 + side / 2, heads @ w_o, **fine)


@figure
def linear_bridge():
    """Two spaces of word vectors, and the linear map between them."""
    english = numbers("1 0.2; 0.8 0.6; -0.5 1; -0.4 -0.9")
    french = english @ numbers("0 1; -2 0")
    figure, (above, below) = plt.subplots(2, 1, figsize=(4.4, 6.4))
    words_in_plane(above, french, ("chien", "chat", "lait", "voiture"))
    above.set_title("queries: French")
    words_in_plane(below, english, ("dog", "cat", "milk", "car"))
    below.set_title("keys: English")
    figure.tight_layout(h_pad=4.5)
    top = above.get_position().y0
    bottom = below.get_position().y1
    style = {"arrowstyle": "-|>", "mutation_scale": 18, "color": DARK}
    ends = (0.42, bottom + 0.055), (0.42, top - 0.085)
    below.annotate("", *ends, "figure fraction", arrowprops=style)
    middle = (top + bottom) / 2 - 0.015
    figure.text(0.46, middle, "q W: a linear map", va="center", weight="bold")


def words_in_plane(panel, points, words):
    """The points of words, and the lines between neighbours."""
    up = {"chat": -0.3, "lait": -0.3, "dog": -0.3, "car": -0.1}
    round_trip = points[[0, 1, 2, 3, 0]]
    panel.plot(*round_trip.T, color=MIDDLE, lw=1)
    panel.plot(*points.T, "o", color=DARK)
    for word, (x, y) in zip(words, points, strict=True):
        panel.text(x + 0.12, y + up.get(word, 0.1), word)
    panel.set(xlim=(-2.4, 2.8), ylim=(-1.2, 1.5), aspect="equal")
    panel.set(xlabel="component 1", ylabel="component 2")


@figure
def head_weights():
    """Eight matrices of 64 columns, side by side."""
    canvas(5.4, 5.2)
    for head in range(8):
        x = 0.75 + 0.56 * head
        shade = LIGHT if head % 2 else "white"
        cell(x, 3.1, 0.42, 1.4, f"$W_{head + 1}^Q$", shade)
        write(x + 0.21, 4.57, "64", "on", size=10)
        left = 1.0 + 0.45 * head
        arrow((x + 0.21, 3.1), (left + 0.22, 2.42))
        cell(left, 0.9, 0.45, 1.5, color=shade)
    write(0.68, 3.8, "D = 512", "left", rotation=90, size=11)
    write(0.93, 1.65, "D = 512", "left", rotation=90, size=11)
    write(2.9, 4.85, "eight heads: columns of each matrix", "on", size=11)
    write(2.8, 0.62, "8 · 64 = 512 columns: W_q", "on", size=12)
    write(2.8, 0.2, "x W_q holds the queries of all heads side by side", "on", size=11)


@figure
def masks():
    """Causal mask, padding mask, both."""
    causal = nf.causal_mask(5)
    is_word = np.arange(5) < 3
    padding = np.broadcast_to(is_word, (5, 5))
    canvas(5.4, 2.75)
    grids = {"causal": causal, "padding": padding, "both (&)": causal & padding}
    for column, (title, mask) in enumerate(grids.items()):
        x = 0.42 + 1.68 * column
        y = 2.15
        for (row, key), keep in np.ndenumerate(mask):
            text = "" if keep else "×"
            color = DARK if keep else "white"
            left = x + 0.3 * key
            low = y - 0.3 * (row + 1)
            cell(left, low, 0.3, 0.3, text, color, 10, DARK, edgecolor=MIDDLE)
        write(x + 0.75, 2.42, title, "on")
        write(x + 0.75, 2.2, "keys", "on", size=10)
        if column == 0:
            write(x - 0.08, y - 0.75, "queries", "left", rotation=90, size=10)
    write(2.7, 0.2, "filled: may attend; ×: may not", "on", size=11)


@figure
def attention_reverse():
    """The cross-attention of all heads of a model that reverses: ``npformer copy --task reverse``
    trained it.
    """
    data = results("attention_reverse")
    canvas(7.2, 4.5)
    side = 0.185
    for layer, heads in enumerate(data["heads"]):
        top = 4.2 - 2.15 * layer
        write_rows(0.8, top, side, data["written"])
        for head, weights in enumerate(heads):
            left = 0.87 + 1.6 * head
            matrix(left, top, weights, side, texts=np.full((9, 8), ""), peak=1)
            write(left + 4 * side, top + 0.1, f"layer {layer + 1}, head {head + 1}", "on")
            write_columns(left, top - 9.1 * side, side, data["source"], "below")
    write(0.2, 2.3, "what it writes, from top to bottom", rotation=90)
    write(4.0, 0.03, "the sequence that it reads", "on")
