"""Draw the figures of docs/training."""

import numpy as np

from scripts.figures.drawing import DARK, MIDDLE, chart, figure  # needs pip install -e .

import npformer as nf
from npformer.training import inverse_sqrt, warmup_cosine


@figure
def label_smoothing():
    """The loss as a function of the gap between the target's logit and the others, V = 5."""
    axes = chart("target's logit - other logits", "loss")
    gaps = np.linspace(0, 8, 200)
    for smoothing, style in ((0.0, "-"), (0.1, "--"), (0.2, ":")):
        of_gap = lambda gap, eps=smoothing: nf.cross_entropy(
            gap * np.eye(1, 5), np.array([0]), label_smoothing=eps
        )[0]
        losses = [float(of_gap(gap)) for gap in gaps]
        axes.plot(gaps, losses, style, color="black", label=f"ε = {smoothing:g}")
        if smoothing:
            best = np.argmin(losses)
            axes.plot(gaps[best], losses[best], "o", color="black")
    axes.set_ylim(0, 1.8)
    axes.legend(frameon=False)


@figure
def adam_bias():
    """Adam's step for a constant gradient, with bias correction and without."""
    axes = chart("step", "length of the step / lr")
    steps = np.unique(np.geomspace(1, 10_000, 200).astype(int))
    for beta2, style in ((0.98, "--"), (0.999, ":")):
        without = (1 - 0.9**steps) / np.sqrt(1 - beta2**steps)
        axes.plot(steps, without, style, color="black", label=f"without, β₂ = {beta2}")
    axes.plot(steps, np.ones(len(steps)), "-", color="black", label="with bias correction")
    axes.set(xscale="log", ylim=(0, 7))
    axes.legend(frameon=False)


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
        axes.plot(steps, [rate(step) for step in steps], style, color="black", label=name)
    axes.set(ylim=(0, 0.0065), xticks=[0, 2000, 8000, 16_000], yticks=[0, 0.0025, 0.005])
    axes.legend(frameon=False, fontsize=12, ncols=2, loc="upper left", columnspacing=1.0)


@figure
def norm_gradients():
    """The norm of the gradients of a model's decoder layers at the first step, pre-norm and
    post-norm.
    """
    axes = chart("decoder layer", "norm of the gradient")
    rng = np.random.default_rng(0)
    src, tgt = rng.integers(3, 50, (8, 10)), rng.integers(3, 50, (8, 11))
    for norm, style in (("pre", "o-"), ("post", "s--")):
        sizes = {"d_model": 64, "n_heads": 4, "n_layers": 12, "d_ff": 256, "dtype": "float64"}
        model = nf.Transformer(50, 50, norm=norm, **sizes)
        _, grads, _ = model.loss_and_grad(model.init(seed=0), src, tgt, backend="reference")
        norms = [
            np.linalg.norm(grads["decoder"][str(i)]["feed_forward"]["out"]["weight"])
            for i in range(12)
        ]
        axes.plot(range(1, 13), norms, style, color="black", label=f"{norm}-norm")
    axes.set(yscale="log", xticks=[1, 4, 8, 12])
    axes.legend(frameon=False)


@figure
def averaging():
    """A parameter on a parabola with noisy gradients, and the running mean of its values."""
    axes = chart("step", "parameter")
    rng, x, values = np.random.default_rng(4), 0.0, []
    for _ in range(400):
        values.append(x)
        x -= 0.2 * (x + rng.standard_normal())
    steps = np.arange(1, 401)
    axes.plot(steps, values, color=MIDDLE, linewidth=1, label="parameter")
    axes.plot(steps, np.cumsum(values) / steps, color="black", linewidth=2.5, label="mean so far")
    axes.axhline(0, color=DARK, linewidth=0.8, linestyle=":")
    axes.set_ylim(-1.3, 1.7)
    axes.legend(frameon=False, ncols=2, loc="upper left")
