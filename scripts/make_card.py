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
    src = np.array([[*content["examples"][0]["ids"], EOS]])
    written = greedy_decode(model, params, src, bos_id=BOS, eos_id=EOS, max_len=50)[0]
    weights = model.attention_weights(params, src, np.array([[BOS, *written[:-1]]]))["memory"][-1][
        0
    ].mean(0)
    names = [[content["tokens"][id_].strip("▁‿") for id_ in ids] for ids in (written, src[0])]
    words = [[i for i, name in enumerate(line) if name.isalpha()] for line in names]

    plt.figure(figsize=(12, 6.3), facecolor="white")
    plt.figtext(0.05, 0.70, "npformer", size=58, weight="bold")
    plt.figtext(0.05, 0.52, "The Transformer\nfrom scratch in NumPy", size=26, linespacing=1.4)
    claim = "Every backward pass by hand,\nevery gradient checked"
    plt.figtext(0.05, 0.33, claim, size=20, linespacing=1.4, color="#555555")
    axes = plt.axes((0.56, 0.08, 0.40, 0.70))
    axes.imshow(weights[np.ix_(*words)], cmap="Reds", vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(words[0])), [names[0][i] for i in words[0]], size=20)
    axes.set_xticks(
        range(len(words[1])), [names[1][i] for i in words[1]], size=20, rotation=40, ha="left"
    )
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    plt.savefig(PATH, dpi=100, metadata={"Software": None})
    print(f"{PATH}: {PATH.stat().st_size / 1e3:.0f} KB")


if __name__ == "__main__":
    sys.exit(main())
