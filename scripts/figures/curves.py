"""Draw the curves of the pages about training, decoding, positions and ranks."""

import numpy as np

from scripts.figures.drawing import (  # needs pip install -e .
    DARK,
    LIGHT,
    MIDDLE,
    chart,
    figure,
    panels,
    plt,
    results,
)

import npformer as nf
from npformer.decoding.sampling import SamplingOptions, draw as draw_tokens
from npformer.training import inverse_sqrt, warmup_cosine

MARKS = {
    "VGG-16": ("s", 1.0),
    "Inception V3": ("^", 0.8),
    "ResNet-101": ("D", 1.25),
}  # and beside the number of hosts
COLORS = ("#b05000", "#3070b0", "black")  # of networks


def losses_of_gaps(gaps, V, smoothing):
    """The loss of a token, and the gradient of its logit, against its distance from V - 1 equal
    ones.
    """
    logits = np.eye(1, V)
    target = np.array([0])
    pairs = [nf.cross_entropy(gap * logits, target, label_smoothing=smoothing) for gap in gaps]
    losses = [float(loss) for loss, _ in pairs]
    gradients = [dlogits[0, 0] for _, dlogits in pairs]
    return losses, gradients


def curve(axes, x, y, style, label, **more):
    """Draw a black curve."""
    axes.plot(x, y, style, color="black", label=label, **more)


@figure
def label_smoothing():
    """The loss as a function of the gap between the target's logit and the others, V = 5."""
    axes = chart("target's logit - other logits", "loss")
    gaps = np.linspace(0, 8, 200)
    for smoothing, style in ((0.0, "-"), (0.1, "--"), (0.2, ":")):
        losses, _ = losses_of_gaps(gaps, 5, smoothing)
        curve(axes, gaps, losses, style, f"ε = {smoothing:g}")
        if smoothing:
            best = np.argmin(losses)
            axes.plot(gaps[best], losses[best], "o", color="black")
    axes.set_ylim(0, 1.8)
    axes.legend()


@figure
def adam_bias():
    """Adam's step for a constant gradient, with bias correction and without."""
    axes = chart("step", "length of the step / lr")
    steps = np.unique(np.geomspace(1, 10_000, 200).astype(int))
    for beta2, style in ((0.98, "--"), (0.999, ":")):
        without = (1 - 0.9**steps) / np.sqrt(1 - beta2**steps)
        curve(axes, steps, without, style, f"without, β₂ = {beta2}")
    curve(axes, steps, np.ones(len(steps)), "-", "with bias correction")
    axes.set(xscale="log", ylim=(0, 7))
    axes.legend()


@figure
def schedules():
    """The learning rate over 16,000 steps."""
    axes = chart("step", "learning rate")
    steps = np.arange(1, 16_001, 25)
    curves = {
        "constant": (lambda step: 0.005, ":"),
        "inverse_sqrt, noam": (inverse_sqrt(0.005, 2000), "-"),
        "warmup_cosine": (warmup_cosine(0.005, 2000, 16_000), "--"),
    }
    for name, (rate, style) in curves.items():
        rates = [rate(step) for step in steps]
        curve(axes, steps, rates, style, name)
    axes.set(xticks=[0, 2000, 8000, 16_000])
    axes.set(yticks=[0, 0.0025, 0.005], ylim=(0, 0.0065))
    axes.legend(fontsize=12, ncols=2, loc="upper left", columnspacing=1.0)


@figure
def norm_gradients():
    """The norm of the gradients of a model's decoder layers at the first step, pre-norm and
    post-norm.
    """
    axes = chart("decoder layer", "norm of the gradient")
    rng = np.random.default_rng(0)
    src = rng.integers(3, 50, (8, 10))
    tgt = rng.integers(3, 50, (8, 11))
    sizes = {"d_model": 64, "n_heads": 4, "n_layers": 12, "d_ff": 256, "dtype": "float64"}
    for norm, style in (("pre", "o-"), ("post", "s--")):
        model = nf.Transformer(50, 50, norm=norm, **sizes)
        params = model.init(seed=0)
        _, grads, _ = model.loss_and_grad(params, src, tgt, backend="reference")
        layers = [grads["decoder"][str(i)] for i in range(12)]
        weights = [layer["feed_forward"]["out"]["weight"] for layer in layers]
        norms = [np.linalg.norm(weight) for weight in weights]
        curve(axes, range(1, 13), norms, style, f"{norm}-norm")
    axes.set(yscale="log", xticks=[1, 4, 8, 12])
    axes.legend()


@figure
def averaging():
    """A parameter on a parabola with noisy gradients, and the running mean of its values."""
    axes = chart("step", "parameter")
    rng = np.random.default_rng(4)
    x = 0.0
    values = []
    for _ in range(400):
        values.append(x)
        x -= 0.2 * (x + rng.standard_normal())
    steps = np.arange(1, 401)
    axes.plot(steps, values, color=MIDDLE, linewidth=1, label="parameter")
    means = np.cumsum(values) / steps
    axes.plot(steps, means, color="black", linewidth=2.5, label="mean so far")
    axes.axhline(0, color=DARK, linewidth=0.8, linestyle=":")
    axes.set_ylim(-1.3, 1.7)
    axes.legend(ncols=2, loc="upper left")


@figure
def sampling():
    """Four probabilities after temperature, top-k and top-p."""
    axes = chart("", "probability")
    n = 10_000
    probabilities = [0.5, 0.25, 0.15, 0.1]
    logits = np.tile(np.log(probabilities), (n, 1))
    evenly = (np.arange(n) + 0.5) / n
    kinds = {
        "T = 0.5": {"temperature": 0.5},
        "T = 1": {},
        "T = 2": {"temperature": 2.0},
        "top-k 2": {"top_k": 2},
        "top-p 0.8": {"top_p": 0.8},
    }
    beside = np.array([-0.3, -0.1, 0.1, 0.3])
    colors = [DARK, "#808080", MIDDLE, LIGHT]
    for i, options in enumerate(kinds.values()):
        tokens = draw_tokens(logits, evenly, SamplingOptions(**options))
        shares = np.bincount(tokens, minlength=4) / n
        axes.bar(i + beside, shares, 0.2, color=colors, edgecolor=DARK)
    axes.set_xticks(range(len(kinds)), list(kinds))


@figure
def position_curves():
    """The vectors of six positions, as curves over the width."""
    encoding = nf.sinusoidal_encoding(5000, 128)
    shared = {"sharex": True, "sharey": True, "layout": "constrained"}
    rows = panels(6, width=5.9, height=8.4, **shared)
    for axes, position in zip(rows, (0, 1, 10, 1000, 2500, 4999), strict=True):
        axes.plot(encoding[position], ".-", color="black", linewidth=0.9, markersize=3)
        axes.set_title(f"position {position}", loc="left", size=12)
        axes.grid(color=LIGHT)
    axes.set(xticks=[0, 32, 64, 96, 127], xlim=(-1, 128))
    axes.set(yticks=[-1, 0, 1], ylim=(-1.15, 1.15))
    axes.set_xlabel("index in the vector (D = 128)")
    plt.gcf().supylabel("entry of the position vector", size=12)


@figure
def one_page_gpt():
    """The loss of docs/one_page_gpt.py in the run that the page shows, on 192 passages of each part
    of the text.
    """
    data = results("one_page_gpt")
    axes = chart("step", "loss per character")
    steps = data["steps"]
    unread = "the last tenth, which it never reads"
    curve(axes, steps, data["new"], "s--", unread, markersize=5)
    curve(axes, steps, data["read"], "o-", "the rest of the text", markersize=5)
    axes.set(ylim=(0, 2.7), xticks=range(0, 5001, 1000))
    axes.legend()


@figure
def ranks_efficiency():
    """The throughput of a rank, relative to a process alone; bars are what the model says of
    published points.
    """
    axes = chart("ranks (logarithmic)", "efficiency, %")
    data = results("ranks_efficiency")
    ranks = data["ranks"]
    for color, (name, efficiency) in zip(COLORS, data["networks"].items(), strict=True):
        style = {"color": color, "linewidth": 1.5}
        axes.plot(ranks, efficiency["weak"], label=name, **style)
        axes.plot(ranks, efficiency["strong"], linestyle="--", **style)
    for n, efficiency in data["measured"].items():
        curve(axes, [int(n)], [efficiency], "o", f"measured, {n} ranks")
    for name, (mark, beside) in MARKS.items():
        points = data["published"][name]
        hosts = [beside * point["hosts"] for point in points]
        predicted = np.transpose([point["predicted"] for point in points])
        axes.plot([hosts, hosts], predicted, color=MIDDLE, linewidth=4)
        efficiencies = [point["efficiency"] for point in points]
        style = {"color": "white", "markeredgecolor": "black", "label": f"{name}, published"}
        axes.plot(hosts, efficiencies, mark, **style)
    axes.set(xscale="log", ylim=(0, 104))
    ticks = 2 ** np.arange(0, 11, 2)
    axes.set_xticks(ticks, map(str, ticks))
    axes.minorticks_off()
    axes.legend(loc="lower left", fontsize=11)
