"""Draw docs/_static/card.png, the picture of a link to a page of the site: the attention of a
trained model.

python scripts/make_card.py
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import numpy as np
from matplotlib import pyplot as plt

from npformer.commands.shared import command_line  # needs pip install -e .
from scripts import make_playground

from npformer import greedy_decode

PATH = Path(__file__).resolve().parents[1] / "docs" / "_static" / "card.png"
BOS, EOS = 1, 2


@command_line
def main():
    """Draw the card."""
    model, params, content = make_playground.read("en-fr")
    source = [*content["examples"][0]["ids"], EOS]
    src = np.array([source])
    written = greedy_decode(model, params, src, bos_id=BOS, eos_id=EOS, max_len=50)[0]
    tgt_in = np.array([[BOS, *written[:-1]]])
    [of_heads] = model.attention_weights(params, src, tgt_in)["memory"][-1]
    rows = words_of(written, content["tokens"])
    columns = words_of(source, content["tokens"])
    weights = of_heads.mean(0)[np.ix_(list(rows), list(columns))]

    plt.figure(figsize=(12, 6.3), facecolor="white")
    plt.figtext(0.05, 0.70, "npformer", size=58, weight="bold")
    plt.figtext(0.05, 0.52, "The Transformer\nfrom scratch in NumPy", size=26, linespacing=1.4)
    claim = "Every backward pass by hand,\nevery gradient checked"
    plt.figtext(0.05, 0.33, claim, size=20, linespacing=1.4, color="#555555")
    axes = plt.axes((0.56, 0.08, 0.40, 0.70))
    axes.imshow(weights, cmap="Reds", vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(rows)), rows.values(), size=20)
    axes.set_xticks(range(len(columns)), columns.values(), size=20, rotation=40, ha="left")
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    plt.savefig(PATH, dpi=100, metadata={"Software": None})
    print(f"{PATH}: {PATH.stat().st_size / 1e3:.0f} KB")


def words_of(ids, tokens):
    """The words of a sentence by their places, without other tokens."""
    names = [tokens[i].strip("▁‿") for i in ids]
    return {place: name for place, name in enumerate(names) if name.isalpha()}


if __name__ == "__main__":
    sys.exit(main())
