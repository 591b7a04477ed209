"""Pictures, drawn with matplotlib, which is imported only when one is drawn.

``pip install 'npformer[plot]'`` installs it, in a clone ``pip install -e '.[plot]'``.

Every function draws on the ``axes`` that it is given, or else on those of a new figure, returns
them, and writes the figure to a file if it is given a ``path``, whose ending selects the format.
Without a path, the new figure is one of ``matplotlib.pyplot``: a notebook shows it, and so does
``plt.show()``. The first line of each docstring says how many axes there are. Axes without any data
say so.
"""

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.errors import UserError
from npformer.extras import imported
from npformer.reference import sinusoidal_encoding

AnyPath = str | os.PathLike[str]


def plot_loss(
    history: Iterable[Any],
    path: AnyPath | None = None,
    title: str = "Training loss",
    *,
    axes: Any = None,
) -> Any:
    """The loss per token against the step, on a logarithmic scale, and the learning rate below it
    (2 axes).

    Parameters
    ----------
    history : list of StepInfo
        What ``Trainer.fit`` returns.

    Examples
    --------
    >>> from npformer.training import StepInfo
    >>> history = [StepInfo(step, 1 / step, 1e-3, 1.0, 10, 0.1) for step in range(1, 9)]
    >>> above, below = plot_loss(history)
    >>> above.get_ylabel()
    'cross-entropy per token (nats)'
    """
    steps = [info.step for info in history]
    rates = [info.lr for info in history]
    losses = np.array([info.loss for info in history], float)
    axes = _axes(axes, path, 2, (7, 5), sharex=True, height_ratios=[3, 1])
    above, below = axes
    _line(above, steps, losses, color="0.75", linewidth=0.8, label="each step")
    window = max(1, min(25, len(losses) // 4))
    if window > 1:
        means = _running_means(losses, window)
        middles = steps[window // 2 :][: len(means)]
        above.plot(middles, means, color="C0", label=f"mean of {window} steps")
    above.set(yscale="log", ylabel="cross-entropy per token (nats)", title=title)
    above.yaxis.set_major_formatter("{x:g}")
    is_narrow = len(losses) and max(losses) < 10 * min(losses)
    above.yaxis.set_minor_formatter("{x:.3g}" if is_narrow else "")
    _line(below, steps, rates, color="C1")
    below.set(xlabel="step", ylabel="learning rate")
    return _completed(axes, path)


def plot_training(
    records: Iterable[dict[str, Any]],
    path: AnyPath | None = None,
    title: str = "Training",
    *,
    score: tuple[str, str] = ("val_bleu", "BLEU, validation, greedy"),
    axes: Any = None,
) -> Any:
    """Loss, a score on the validation text and learning rate against the step, from a ``JsonLog``
    (3 axes).

    Parameters
    ----------
    records : list of dict
        With numbers "step", "loss" and "lr" (one a step), or "step", "val_loss" and the score (one
        a validation). Other records are not drawn.
    score : (str, str)
        The name of the score, and its label.
    """
    records = list(records)
    score_name, score_label = score
    steps, losses, rates = _columns(records, "step", "loss", "lr")
    val_steps, val_losses, scores = _columns(records, "step", "val_loss", score_name)
    axes = _axes(axes, path, 3, (7, 7), sharex=True, height_ratios=[3, 2, 1])
    above, middle, below = axes
    window = max(1, min(100, len(losses) // 10))
    means = _running_means(losses, window)
    _line(above, steps[window - 1 :], means, color="C0", label=f"training, mean of {window} steps")
    _line(above, val_steps, val_losses, color="C3", marker=".", label="validation")
    above.set(ylabel="cross-entropy per token (nats)", title=title)
    _line(middle, val_steps, scores, color="C3", marker=".")
    middle.set(ylabel=score_label)
    _line(below, steps, rates, color="C1")
    below.set(xlabel="step", ylabel="learning rate")
    return _completed(axes, path)


def _columns(records, *names):
    """A list for each of these names, of the records that have numbers under all of them."""
    rows = []
    for record in records:
        row = [record.get(name) for name in names]
        if all(isinstance(x, (int, float)) for x in row):
            rows.append(row)
    return [[row[i] for row in rows] for i in range(len(names))]


def _running_means(values, window):
    """The mean of each ``window`` values in a row."""
    if len(values) == 0:
        return values
    return np.convolve(values, np.ones(window) / window, mode="valid")


def plot_curves(
    panels: Sequence[dict[str, Any]],
    path: AnyPath | None = None,
    *,
    axes: Any = None,
) -> Any:
    """Panels with curves of several systems, each the middle of its repetitions with their range;
    four are a square.

    Parameters
    ----------
    panels : list of dict
        {"at": places on the x axis, "systems": {name: values (repetitions, places)}}, if wanted
        "labels" of the places, the function "middle" (the median if not given), and what
        ``Axes.set`` takes, such as "title" and "ylim".
    """
    if not panels:
        raise UserError(f"panels is {panels!r}, expected one or more")
    checked = [_panel(**panel) for panel in panels]  # all of them before one is drawn
    rows, columns = (2, 2) if len(panels) == 4 else (1, len(panels))
    axes = _axes(axes, path, (rows, columns), (1 + 5 * columns, 4.5 * rows)).ravel()
    for ax, panel in zip(axes, checked, strict=True):
        for i, curve in enumerate(panel.curves):
            ax.errorbar(
                panel.at,
                curve.middle,
                (curve.below, curve.above),
                label=curve.name,
                color=f"C{i}",
                marker="osD^v"[i % 5],
                linestyle=["-", "--", "-.", ":", "-"][i % 5],
                alpha=0.8,
                markersize=4,
                capsize=2,
            )
        ax.set(**panel.settings)
        ax.set_xticks(panel.at, panel.labels)
        ax.minorticks_off()
    return _completed(axes, path, fontsize=8)


class Curve(NamedTuple):
    """The middle of the values of a system at each place, and how far the others reach."""

    name: str
    middle: Array
    below: Array  # distances to the lowest values
    above: Array  # distances to the highest values


class Panel(NamedTuple):
    """A panel of ``plot_curves``."""

    at: Any
    labels: Any
    curves: list[Curve]
    settings: dict


def _panel(at, systems, labels=None, middle=np.median, **settings):
    """A panel, whose values are checked."""
    curves = []
    for name, values in systems.items():
        values = np.asarray(values, float)
        if values.ndim != 2 or values.shape[1] != len(at):
            expected = f"(repetitions, {len(at)})"
            problem = f"{name} has values of the shape {values.shape}"
            raise UserError(f"{problem}, expected {expected}")
        centre = middle(values, axis=0)
        below = centre - values.min(axis=0)
        above = values.max(axis=0) - centre
        curves.append(Curve(name, centre, below, above))
    return Panel(at, at if labels is None else labels, curves, settings)


def plot_attention(
    weights: Iterable[Array],
    keys: Sequence[str],
    queries: Sequence[str],
    path: AnyPath | None = None,
    title: str = "Attention",
    xlabel: str = "source word (key)",
    ylabel: str = "target word just read (query)",
    *,
    axes: Any = None,
) -> Any:
    """One heat map a head, a row of them a layer (axes of that shape): keys across, queries down.

    Parameters
    ----------
    weights : sequence of (H, T, S)
        A layer each, of one sequence: ``model.attention_weights(...)["memory"]`` without its axis
        B. A single map has no title of its own.
    keys, queries : sequences of str
        The words at the S keys and at the T queries. A query is the word read; the model answers
        with the next one.
    title, xlabel, ylabel : str
        The title is that of a new figure.
    """
    weights = [np.asarray(layer) for layer in weights]
    shapes = {layer.shape for layer in weights}
    if len(shapes) != 1 or weights[0].ndim != 3 or weights[0].size == 0:
        problem = f"weights has layers of the shapes {[layer.shape for layer in weights]}"
        raise UserError(f"{problem}, expected one (H, T, S) without a 0 for all layers")
    n_heads, T, S = weights[0].shape
    if (len(queries), len(keys)) != (T, S):
        expected = f"(H, {len(queries)}, {len(keys)}), a word for each"
        raise UserError(f"weights {weights[0].shape}: expected {expected}")
    largest = max(layer.max() for layer in weights)
    rotation = 90 if max(map(len, keys), default=0) > 2 else 0
    width = 1 + n_heads * max(1.7, 0.18 * S)
    height = 1 + len(weights) * max(2.2, 0.24 * T)
    axes = _axes(
        axes,
        path,
        (len(weights), n_heads),
        (width, height),
        sharex=True,
        sharey=True,
        title=title,
    )
    from matplotlib import colormaps

    colours = colormaps["Reds"].with_extremes(bad="0.85")
    for (i, h), ax in np.ndenumerate(axes):
        of_head = np.ma.masked_equal(weights[i][h], 0)
        image = ax.imshow(of_head, vmin=0, vmax=largest, cmap=colours, aspect="auto")
        if axes.size > 1:
            ax.set_title(f"layer {i + 1}, head {h + 1}", fontsize=10)
        # A word may have $.
        ax.set_xticks(range(S), keys, fontsize=9, rotation=rotation, parse_math=False)
        ax.set_yticks(range(T), queries, fontsize=9, parse_math=False)
    for ax in axes[-1]:
        ax.set_xlabel(xlabel)
    for ax in axes[:, 0]:
        ax.set_ylabel(ylabel)
    axes[0, 0].figure.colorbar(image, ax=axes, label="attention weight (grey: masked)", shrink=0.8)
    return _saved(axes, path)


def plot_positional_encoding(
    path: AnyPath | None = None, length: int = 100, d_model: int = 64, *, axes: Any = None
) -> Any:
    """The sinusoidal encoding (length, d_model) as an image, and four of its dimensions as curves
    (2 axes).
    """
    encoding = sinusoidal_encoding(length, d_model)
    axes = _axes(axes, path, 2, (8, 7), height_ratios=[3, 2])
    above, below = axes
    image = above.imshow(encoding.T, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", origin="lower")
    title = f"Sinusoidal positional encoding, D = {d_model}"
    above.set(xlabel="position", ylabel="dimension", title=title)
    above.figure.colorbar(image, ax=above, label="value")
    for dimension in sorted({min(d, d_model - 1) for d in (0, 8, 9, 24)}):
        wave = "sine" if dimension % 2 == 0 else "cosine"
        wavelength = 2 * math.pi * 10000 ** (2 * (dimension // 2) / d_model)
        label = f"dimension {dimension}: {wave} of wavelength {wavelength:.0f}"
        _line(below, range(length), encoding[:, dimension], label=label)
    below.set(xlabel="position", ylabel="value", xlim=above.get_xlim())
    below.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)
    below.grid(alpha=0.3)
    return _saved(axes, path)


def _axes(axes, path, shape, size, title=None, **options):
    """The axes of the caller as an array of this shape, or those of a new figure of this size in
    inches.
    """
    if axes is None:
        figure = _new_figure(path, figsize=size, dpi=120, layout="constrained")
        if title:
            figure.suptitle(title, parse_math=False, wrap=True)
        axes = figure.subplots(*np.atleast_1d(shape), squeeze=False, **options)
        return axes.reshape(shape)
    axes = np.array(axes, object)
    if axes.size != np.prod(shape) or (axes.ndim == 2 and axes.shape != shape):
        raise UserError(f"axes has shape {axes.shape}, expected {shape}")
    return axes.reshape(shape)


def _new_figure(path, **options):
    """A figure of pyplot, or if it is only written to a file, one that no window shows."""
    if path is None:
        return imported("matplotlib.pyplot", "plot", "pictures need").pyplot.figure(**options)
    return imported("matplotlib.figure", "plot", "pictures need").figure.Figure(**options)


def _line(ax, x, y, **style):
    """Draw a line: nothing without a point, and one point alone, which has no line, as a dot."""
    if len(x) == 1:
        style = {"marker": ".", **style}
    if len(x):
        ax.plot(x, y, **style)


def _completed(axes, path, **legend):
    """The axes with a grid and a legend, or a word where nothing was drawn; as ``_saved``."""
    for ax in axes:
        ax.grid(alpha=0.3)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(**legend)
        if not ax.get_lines():
            style = {"ha": "center", "va": "center", "color": "0.5"}
            ax.text(0.5, 0.5, "no data", transform=ax.transAxes, **style)
    return _saved(axes, path)


def _saved(axes, path):
    """The axes, whose figure is written to a file if there is a path."""
    if path is not None:
        try:
            np.ravel(axes)[0].figure.savefig(path)
        except OSError as error:  # which may not name the file, for example if the disk is full
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    return axes
