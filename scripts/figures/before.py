"""Draw the figures of docs/before: the models before the Transformer, and what was measured of
them.

The measured figures are drawn from the files in ``scripts/figures/results``; the pages say which
command wrote each.
"""

import itertools

import numpy as np

from scripts.figures.drawing import (  # needs pip install -e .
    BY_SIGN,
    DARK,
    LIGHT,
    MIDDLE,
    canvas,
    chart,
    color_of,
    figure,
    line,
    node,
    panels,
    plt,
    results,
    write,
)

SUBLAYERS = {"encoder": "encoder, self", "decoder": "decoder, self", "memory": "decoder, cross"}


@figure
def bytenet():
    """The words that a column sees: two layers of three taps, in the encoder and in the causal
    decoder.
    """
    canvas(7.2, 3.1)
    sides = ((0.5, "encoder: both sides", 1, 1), (4.2, "decoder: causal", 2, 0))
    for left, title, back, ahead in sides:
        ys = (0.6, 1.45, 2.3)
        seen = [set(), set(), {2}]
        for depth, at, lower in itertools.product((2, 1), range(5), range(5)):
            if not -back <= lower - at <= ahead:
                continue
            style = {"color": MIDDLE, "linewidth": 1, "zorder": 1, "linestyle": ":"}
            if at in seen[depth]:
                seen[depth - 1].add(lower)
                style |= {"color": DARK, "linewidth": 2, "linestyle": "-"}
            start = left + 0.6 * at, ys[depth]
            end = left + 0.6 * lower, ys[depth - 1]
            line(start, end, **style)
        for depth, at in itertools.product(range(3), range(5)):
            x = left + 0.6 * at
            text = "" if depth else str(at + 1)
            color = MIDDLE if at in seen[depth] else "white"
            node(x, ys[depth], text, 0.19, color)
        write(left + 1.2, 2.75, title, "on", size=13)
        write(left + 1.2, 0.12, "words", "on", size=11, color=DARK)
    write(3.55, 1.45, "depth 1", size=11, color=DARK)
    write(3.55, 2.3, "depth 2", size=11, color=DARK)


# Of the lines, so that they differ in grey: marker, dashes and colour.
ORANGE = "#b05000"
BLUE = "#3070b0"
STYLES = {
    "recurrent": ("o--", ORANGE),
    "recurrent + general": ("s-.", BLUE),
    "recurrent + additive": ("D:", BLUE),
    "ByteNet": ("v:", DARK),
    "Transformer": ("^-", "black"),
    "dot product": ("o--", ORANGE),
    "dot product / √K": ("^-", "black"),
    "additive": ("D:", BLUE),
}


def by_length(axes, at, systems, trained, name="values"):
    """Curves of the median of the seeds, with bars from the smallest to the largest; what was
    trained is shaded.
    """
    axes.axvspan(*trained, color=LIGHT, zorder=0)
    for system, data in systems.items():
        values = np.array(data[name])
        middle = np.median(values, axis=0)
        spread = middle - values.min(axis=0), values.max(axis=0) - middle
        style, color = STYLES[system]
        more = {"label": system, "capsize": 3, "markersize": 5}
        axes.errorbar(at, middle, spread, fmt=style, color=color, **more)
    ticks(axes, at)


def curves(axes, at, systems):
    """A curve for each system, which may end before the others."""
    for system, values in systems.items():
        style, color = STYLES[system]
        axes.plot(at[: len(values)], values, style, color=color, label=system)


def ticks(axes, at):
    """Ticks at these places of a logarithmic axis."""
    axes.set_xscale("log")
    axes.set_xticks(at, at)
    axes.minorticks_off()


@figure
def recurrent_alignment():
    """The weights of a recurrent decoder on the source words, for each word that it translated."""
    alignment(results("recurrent_alignment"))


@figure
def attention_en_fr():
    """The weights of a Transformer on the pieces of the source, the mean of all layers and heads:
    ``npformer translate --attention`` drew them.
    """
    alignment(results("attention_en_fr"))


def alignment(data):
    """The weights of each piece of a translation on the pieces of its source."""
    weights = np.array(data["weights"])
    axes = panels(1, height=5.4)
    axes.imshow(weights, cmap=BY_SIGN, vmin=-1, vmax=1)
    for (t, s), weight in np.ndenumerate(weights):
        if weight >= 0.1:
            _, ink = color_of(weight)
            write(s, t, f"{weight:.1f}".lstrip("0"), size=9, color=ink)
    source = [piece.replace("▁", "") for piece in data["source"]]
    target = [piece.replace("▁", "") for piece in data["target"]]
    axes.set_xticks(range(len(source)), source, rotation=60)
    axes.set_yticks(range(len(target)), target)
    axes.set_xlabel("pieces of the source")
    axes.set_ylabel("pieces of the translation, from the first (top)")
    axes.spines[["top", "right"]].set_visible(True)


@figure
def length_sequences():
    """The share of symbols that are right against length, up to ten times the length of the
    training.
    """
    data = results("length_sequences")
    at = data["sizes"]["lengths"]
    longest = data["sizes"]["longest"]
    both = panels(2, height=6.6, sharex=True)
    for axes, task in zip(both, ("reverse", "copy"), strict=True):
        trained = at[0] * 0.9, longest * 1.08
        by_length(axes, at, data[task], trained, "symbols")
        axes.set(ylim=(-3, 104), ylabel=f"{task}: symbols right, %")
        axes.axhline(12.5, color=MIDDLE, linewidth=1)
        axes.text(6, 14, "chance", size=10, color=DARK)
    both[1].legend(loc="upper right", fontsize=11)
    both[0].text(8.6, 45, "lengths of\nthe training", ha="center", size=11, color=DARK)
    both[1].set_xlabel("symbols of the sequence (logarithmic)")


@figure
def length_exact():
    """The share of sequences that are right as a whole, of models that read up to 20 symbols in the
    training.
    """
    data = results("length_exact")
    both = panels(2, height=6.2, sharex=True)
    for axes, task in zip(both, ("reverse", "copy"), strict=True):
        curves(axes, data["lengths"], data[task])
        axes.set(ylim=(-3, 104), ylabel=f"{task}: all right, %", xticks=data["lengths"])
    both[1].legend(loc="lower left", fontsize=11)
    both[1].set_xlabel("symbols of the sequence")


@figure
def path_and_time():
    """The path between two words, and the time of an update, against the length."""
    data = results("path_and_time")
    both = panels(2, height=7.2, sharex=True)
    for axes, name in zip(both, ("path", "milliseconds"), strict=True):
        curves(axes, data["words"], data[name])
        axes.set_yscale("log")
        ticks(axes, data["words"])
    both[0].set_ylabel("states or layers on the path")
    both[1].set(xlabel="words (logarithmic)", ylabel="ms an update, 8 pairs")
    both[1].legend(loc="upper left", fontsize=11)


@figure
def attention_scores():
    """Three forms of a score against the width of queries and keys: the means of five seeds."""
    data = results("attention_scores")
    four = panels(2, 2, width=7.4, height=6.6).ravel()
    for axes, (name, panel) in zip(four, data["panels"].items(), strict=True):
        curves(axes, data["K"], panel)
        axes.set_xlabel("width K (logarithmic)")
        axes.set_title(name, size=12)
        ticks(axes, data["K"])
        if name in data["logarithmic"]:
            axes.set_yscale("log")
    four[0].legend(loc="upper left", fontsize=11)


@figure
def length_joined():
    """BLEU against the number of sentences that are translated as one text."""
    data = results("joined")
    axes = panels(1, height=3.6)
    by_length(axes, data["sentences"], data["systems"], (0.9, 3.2))
    axes.set(ylim=(0, 29), xlabel="sentences joined (logarithmic)", ylabel="BLEU")
    write(1.75, 15, "numbers of\nthe training", "on", size=11, color=DARK)
    axes.legend(loc="upper right", fontsize=11)


@figure
def heads_reverse():
    """The mean weights of all heads of the model that reverses, darker with what is lost without
    the head.
    """
    data = results("heads_reverse")
    grid = panels(6, 4, width=6.4, height=10.2)
    for axes, head in zip(grid.ravel(), data["heads"], strict=True):
        axes.imshow(head["weights"], cmap=BY_SIGN, vmin=-1, vmax=1)
        number = f"{head['layer'] + 1}.{head['head'] + 1}"
        axes.set_title(f"{number}: {head['right']:.0f} %", size=11)
        axes.set(xticks=[], yticks=[])
        axes.spines[["top", "right"]].set_visible(True)
    for row, (name, layer) in enumerate(itertools.product(SUBLAYERS.values(), (1, 2))):
        grid[row, 0].set_ylabel(f"{name} {layer}", size=11)
    plt.gcf().supxlabel("keys, from the first to the last", size=11)
    plt.gcf().supylabel("queries, from the first (top) to the last", size=11)


@figure
def heads_en_fr():
    """By how much the loss of the translation model grows without each head, and without each
    sublayer's heads.
    """
    data = results("heads_en_fr")
    axes = panels(1, height=6.4)
    labels = {}  # by their heights
    y = 0.0
    for sublayer in data["sublayers"]:
        kind = sublayer["kind"]
        layer = sublayer["layer"]
        for head in data["heads"]:
            if (head["kind"], head["layer"]) == (kind, layer):
                increase = head["loss"] - data["loss"]
                axes.barh(y, increase, color=DARK)
                labels[y] = f"{SUBLAYERS[kind]} {layer + 1}.{head['head'] + 1}"
                y += 1
        increase = sublayer["loss"] - data["loss"]
        axes.barh(y, increase, color="white", edgecolor=DARK, hatch="///")
        labels[y] = "all four"
        y += 1.6
    axes.set_yticks(list(labels), labels.values(), size=9)
    axes.set(xscale="log", xlim=(0.002, 2))
    axes.set_xlabel("increase of the loss, nats per token (logarithmic)")
    places = [0.01, 0.1, 1]
    axes.set_xticks(places, places)
    axes.invert_yaxis()
    axes.grid(axis="x", color=LIGHT)
    axes.set_axisbelow(True)


@figure
def translation_by_length():
    """BLEU against the length of the source, of five systems."""
    data = results("translation_by_length")
    axes = chart("words of the source, the mean of each class", "BLEU, lower-cased")
    curves(axes, data["words"], data["systems"])
    axes.set(ylim=(0, 92), yticks=range(0, 61, 10))
    axes.legend(loc="upper right", fontsize=11, ncols=2)


@figure
def bleu_by_length():
    """The scores of a translation model for classes of sentences, from the shortest to the
    longest.
    """
    data = results("bleu_by_length")
    axes = chart("words of the source", "score")
    styles = ("D:", DARK), ("^-", "black"), ("o--", ORANGE)
    for (name, values), (style, color) in zip(data["scores"].items(), styles, strict=True):
        axes.plot(values, style, color=color, label=name)
    words = [name.replace("and more", "or\nmore") for name in data["words"]]
    axes.set_xticks(range(6), words, size=11)
    axes.set_ylim(0, 100)
    axes.legend(loc="lower left", fontsize=11)


@figure
def anomaly_scores():
    """How the reconstruction errors of sequences that follow a pattern, and of others, are
    distributed: ``npformer detect-anomalies --json`` measured them.
    """
    data = results("anomaly_scores")
    axes = chart("error, nats per token (logarithmic)", "sequences")
    styles = (
        {"color": MIDDLE, "fill": True},
        {"color": BLUE, "linewidth": 2},
        {"color": ORANGE, "linewidth": 2, "linestyle": "--"},
        {"color": DARK, "linewidth": 2, "linestyle": ":"},
    )
    for (name, counts), style in zip(data["sequences"].items(), styles, strict=True):
        axes.stairs(counts, data["edges"], label=name, **style)
    axes.set_xscale("log")
    places = [0.001, 0.01, 0.1, 1, 10]
    axes.set_xticks(places, places)
    axes.legend(loc="upper left", fontsize=11)
