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
from typing import Any

import numpy as np

from npformer.arrays import Array
from npformer.reference import sinusoidal_encoding
from npformer.runtime.extras import imported

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
    steps, rates = [info.step for info in history], [info.lr for info in history]
    losses = np.array([info.loss for info in history], float)
    above, below = axes = _axes(axes, path, 2, (7, 5), sharex=True, height_ratios=[3, 1])
    _line(above, steps, losses, color="0.75", linewidth=0.8, label="each step")
    window = max(1, min(25, len(losses) // 4))
    if window > 1:
        smooth = np.convolve(losses, np.ones(window) / window, mode="valid")
        middles = steps[window // 2 :][: len(smooth)]
        above.plot(middles, smooth, color="C0", label=f"mean of {window} steps")
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
    steps = [record for record in records if _are_numbers(record, "step", "loss", "lr")]
    names = "step", "val_loss", score[0]
    validations = [record for record in records if _are_numbers(record, *names)]
    above, middle, below = axes = _axes(axes, path, 3, (7, 7), sharex=True, height_ratios=[3, 2, 1])
    at = [record["step"] for record in steps]
    losses = np.array([record["loss"] for record in steps])
    window = max(1, min(100, len(losses) // 10))
    smooth = np.convolve(losses, np.ones(window) / window, mode="valid") if len(losses) else losses
    _line(above, at[window - 1 :], smooth, color="C0", label=f"training, mean of {window} steps")
    val_at = [record["step"] for record in validations]
    val_losses = [record["val_loss"] for record in validations]
    _line(above, val_at, val_losses, color="C3", marker=".", label="validation")
    above.set(ylabel="cross-entropy per token (nats)", title=title)
    _line(middle, val_at, [record[score[0]] for record in validations], color="C3", marker=".")
    middle.set(ylabel=score[1])
    _line(below, at, [record["lr"] for record in steps], color="C1")
    below.set(xlabel="step", ylabel="learning rate")
    return _completed(axes, path)


def _are_numbers(record, *names):
    return all(isinstance(record.get(name), (int, float)) for name in names)


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
        raise ValueError(f"panels is {panels!r}, expected one or more")
    drawn = [_panel(**panel) for panel in panels]
    rows, columns = (2, 2) if len(panels) == 4 else (1, len(panels))
    axes = _axes(axes, path, (rows, columns), (1 + 5 * columns, 4.5 * rows)).ravel()
    for ax, (at, labels, curves, settings) in zip(axes, drawn, strict=True):
        for i, (system, middle, spread) in enumerate(curves):
            style = {
                "color": f"C{i}",
                "marker": "osD^v"[i % 5],
                "linestyle": ["-", "--", "-.", ":", "-"][i % 5],
                "alpha": 0.8,
            }
            ax.errorbar(at, middle, spread, label=system, markersize=4, capsize=2, **style)
        ax.set(**settings)
        ax.set_xticks(at, labels)
        ax.minorticks_off()
    return _completed(axes, path, fontsize=8)


def _panel(at, systems, labels=None, middle=np.median, **settings):
    """A panel of ``plot_curves`` with (name, middle, distances to the lowest and the highest value)
    of each system.
    """
    curves = []
    for system, values in systems.items():
        values = np.asarray(values, float)
        if values.ndim != 2 or values.shape[1] != len(at):
            expected = f"(repetitions, {len(at)})"
            problem = f"{system} has values of the shape {values.shape}"
            raise ValueError(f"{problem}, expected {expected}")
        centre = middle(values, axis=0)
        curves.append((system, centre, (centre - values.min(axis=0), values.max(axis=0) - centre)))
    return at, at if labels is None else labels, curves, settings


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
        given = [layer.shape for layer in weights]
        expected = "one (H, T, S) without a 0 for all layers"
        raise ValueError(f"weights has layers of the shapes {given}, expected {expected}")
    n_heads, T, S = weights[0].shape
    if (len(queries), len(keys)) != (T, S):
        expected = f"(H, {len(queries)}, {len(keys)}), a word for each"
        raise ValueError(f"weights {weights[0].shape}: expected {expected}")
    largest = max(layer.max() for layer in weights)
    rotation = 90 if max(map(len, keys), default=0) > 2 else 0
    size = 1 + n_heads * max(2.0, 0.22 * S), 1 + len(weights) * max(2.2, 0.24 * T)
    axes = _axes(axes, path, (len(weights), n_heads), size, sharex=True, sharey=True, title=title)
    from matplotlib import colormaps

    colours = colormaps["Reds"].with_extremes(bad="0.85")
    for (i, h), ax in np.ndenumerate(axes):
        seen = np.ma.masked_equal(weights[i][h], 0)
        image = ax.imshow(seen, vmin=0, vmax=largest, cmap=colours, aspect="auto")
        if axes.size > 1:
            ax.set_title(f"layer {i + 1}, head {h + 1}", fontsize=9)
        # A word may have $.
        ax.set_xticks(range(S), keys, fontsize=7, rotation=rotation, parse_math=False)
        ax.set_yticks(range(T), queries, fontsize=7, parse_math=False)
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
    above, below = axes = _axes(axes, path, 2, (8, 7), height_ratios=[3, 2])
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


def _axes(given, path, shape, size, title=None, **options):
    """The given axes, an array of this shape, or those of a new figure of this size in inches."""
    if given is None:
        module = "matplotlib.pyplot" if path is None else "matplotlib.figure"
        matplotlib = imported(module, "plot", "pictures need")
        new_figure = (
            matplotlib.pyplot.figure if path is None else matplotlib.figure.Figure
        )  # nobody looks at the latter
        figure = new_figure(figsize=size, dpi=120, layout="constrained")
        if title:
            figure.suptitle(title, parse_math=False, wrap=True)
        axes = figure.subplots(*np.atleast_1d(shape), squeeze=False, **options)
    else:
        axes = np.array(given, object)
        if axes.size != np.prod(shape) or (axes.ndim == 2 and axes.shape != shape):
            raise ValueError(f"axes has shape {axes.shape}, expected {shape}")
    return axes.reshape(shape)


def _line(ax, x, y, **style):
    """Draw a line: nothing without a point, and one point alone, which has no line, as a dot."""
    if len(x):
        ax.plot(x, y, **({"marker": "."} if len(x) == 1 else {}) | style)


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
