"""Draw the figures of the pages about gradients from layer normalisation on."""

import numpy as np

from scripts.figures.curves import losses_of_gaps  # needs pip install -e .
from scripts.figures.drawing import (  # needs pip install -e .
    DARK,
    DASHED,
    LIGHT,
    MIDDLE,
    arrow,
    beside_arrows,
    box,
    canvas,
    figure,
    line,
    matrix,
    numbers,
    panels,
    plt,
    results,
    rung,
    write,
    write_directions,
    write_rows,
    zero_lines,
)

import npformer as nf
from npformer.reference.math.activations import ACTIVATIONS


@figure
def gradients_layer_norm():
    """The gradient of x̂ keeps only its part along the circle on which all x̂ lie."""
    canvas(5.0, 4.7)
    centre = np.array([1.75, 2.05])
    radius = 1.5
    turn = 0.4
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.transpose([np.cos(angle), np.sin(angle)])
    line(*(centre + radius * circle), linewidth=1.2)
    direction = np.array([np.cos(turn), np.sin(turn)])
    around = np.array([-np.sin(turn), np.cos(turn)])
    x_hat = centre + radius * direction
    x = centre + 2.6 * direction
    kept = x_hat + 1.4 * around
    end = kept + 0.75 * direction
    line(x_hat, x, linewidth=1, linestyle=DASHED)
    line(kept, end, linewidth=1, linestyle=DASHED)
    arrow(centre, x_hat)
    arrow(x_hat, end)
    arrow(x_hat, kept)
    plt.plot(*centre, "o", color=DARK, markersize=4)
    plt.plot(*x, "o", color=DARK, markersize=5)
    beside = centre + 0.6 * direction + 0.1 * around
    write(*beside, "x̂", "above", size=14)
    write(x[0], x[1] + 0.12, "x − mean(x)", "above", size=12)
    write(end[0] - 0.2, end[1] + 0.08, "dx̂ − mean(dx̂)", "above", size=12)
    write(kept[0] - 0.12, kept[1] + 0.1, "what is kept: dx / rstd", "left-above", size=12)
    write(centre[0] - 0.1, centre[1] - 0.1, "0", "left-below", size=12)
    write(2.5, 0.3, "the rows with mean 0; the circle has radius √D", "below", size=12)


@figure
def gradients_activations():
    """The curves of three activations and their slopes."""
    curves, slopes = panels(2, width=5, height=5.6, sharex=True)
    x = np.linspace(-4, 3, 701)
    dashes = {"relu": (), "gelu": (5, 2), "silu": (1, 1.5)}
    for name, dash in dashes.items():
        style = (0, dash)
        f, f_backward = ACTIVATIONS[name]
        curves.plot(x, f(x), color="black", linestyle=style, label=name)
        slope = f_backward(np.ones_like(x), x)
        if name == "relu":
            slope[abs(x) < 1e-9] = np.nan  # a jump, not a line
        slopes.plot(x, slope, color="black", linestyle=style)
    curves.set(ylabel="f(x)")
    slopes.set(ylabel="slope f′(x)", xlabel="x")
    curves.legend()
    zero_lines(curves)
    zero_lines(slopes)


@figure
def embedding_rows():
    """A look-up copies rows; its backward pass adds rows."""
    canvas(5, 5.9)
    ids = np.array([2, 0, 2])
    dy = numbers("1 -1; 2 0; 10 5")
    table = numbers("0.1 0.2; 0.3 0.4; 0.5 0.6; 0.7 0.8")
    dtable = nf.embedding_backward(dy, ids, (4, 2))
    matrix(0.8, 5.1, table, title="table E")
    matrix(3.2, 4.85, table[ids], title="Y")
    matrix(0.8, 2.3, dtable, title="dE")
    matrix(3.2, 2.05, dy, title="dY")
    for top in (5.1, 2.3):
        write_rows(0.65, top, 0.5, range(4), color=DARK)
        of_ids = [f"id {row}" for row in ids]
        write_rows(4.3, top - 0.25, 0.5, of_ids, "right", color=DARK)
    for place, row in enumerate(ids):
        of_table = -0.25 - 0.5 * row
        of_text = -0.5 - 0.5 * place
        arrow((1.84, 5.1 + of_table), (3.16, 5.1 + of_text))
        arrow((3.16, 2.3 + of_text), (1.84, 2.3 + of_table))
    write(2.5, 5.65, "forward: rows are copied", "on", weight="bold")
    write(2.5, 2.82, "backward: rows are added", "on", weight="bold")


@figure
def positions_rotation():
    """Steps rotate each pair; the dot product depends on the distance only."""
    figure = plt.figure(figsize=(5, 6.6))
    turn = np.linspace(0, 2 * np.pi, 200)
    encoding = nf.sinusoidal_encoding(101, 64)
    for i, frequency in enumerate((1.0, 0.1)):
        limits = {"xlim": (-1.4, 1.4), "ylim": (-1.4, 1.4), "aspect": "equal"}
        axes = figure.add_axes((0.03 + 0.49 * i, 0.56, 0.46, 0.36), **limits)
        axes.set_axis_off()
        axes.plot(np.cos(turn), np.sin(turn), color=MIDDLE)
        for position in range(7):
            x = np.sin(frequency * position)
            y = np.cos(frequency * position)
            axes.plot([0, x], [0, y], color=MIDDLE, linewidth=0.8)
            axes.plot(x, y, "o", color=DARK, markersize=5)
            if i == 0 or position % 3 == 0:
                write(1.2 * x, 1.2 * y, f"{position}", size=11)
        axes.set_title(f"pair {i}, ω = {frequency:g} (D = 8)\nright: sin, up: cos", size=12)
    axes = figure.add_axes((0.14, 0.09, 0.82, 0.36))
    distance = np.arange(-50, 51)
    axes.plot(distance, encoding[50] @ encoding.T, color=DARK)
    axes.axhline(0, color=MIDDLE, linewidth=0.8)
    axes.set(xlabel="distance n of two positions", ylabel="dot product (D = 64)", ylim=(0, 34))


@figure
def cross_entropy_smoothing():
    """Gradient of one token's logit against its distance from the others."""
    V = 10
    gaps = np.linspace(0, 10, 201)
    axes = panels(1, width=5, height=3.4, layout="constrained")
    for smoothing, style in ((0.0, "--"), (0.1, "-")):
        _, gradients = losses_of_gaps(gaps, V, smoothing)
        axes.plot(gaps, gradients, style, color=DARK, label=f"ε = {smoothing:g}")
    best = np.log(1 + 0.9 * V / 0.1)
    axes.axhline(0, color=MIDDLE, linewidth=0.8)
    axes.plot(best, 0, "o", color=DARK)
    beside = (best - 1.6, 0.08)
    axes.annotate("p = q", (best, 0), beside, arrowprops={"arrowstyle": "->"})
    axes.set_xlabel("target's logit minus the others' logit (V = 10)")
    axes.set_ylabel("gradient of the target's logit")
    axes.legend(loc="lower right")


@figure
def layer_backward():
    """The word e₂ of layers.md through an encoder layer, and one loss back to it, with all numbers
    of residual.md.
    """
    canvas(9.0, 12.9)
    *rungs, key, value = results("layer_backward")
    tops = 12.0 - 1.05 * np.arange(len(rungs))
    tops[1:] -= 0.9  # e₂ is also one of the keys, and one of the values: two rows more
    style = {"peak": 3, "form": "{:.2f}", "width": 0.5}
    for top, quantity in zip(tops, rungs, strict=True):
        if quantity["name"] == "q₂":
            rung(4.5, top, 1.5, key, **style)
            beside_arrows(4.5, top + 1.2, quantity, **style)
            beside_arrows(4.5, top + 0.3, value, **style)
        else:
            rung(4.5, top, 0.6, quantity, **style)
        text = quantity["then"]
        color = LIGHT if text.startswith("add") else "white"
        box(3.3, top - 0.45, 2.4, 0.45, text, color, size=11)
    for start, end in ((0, 4), (6, 8)):  # past the sublayer, on both sides
        low = tops[end] - 0.22
        high = tops[start] + 0.3
        line((3.3, low), (0.25, low), (0.25, high))
        line((0.25, high), (1.75, high))
        arrow((3.1, low), (3.3, low))
        line((5.7, low), (8.75, low), (8.75, high))
        line((8.75, high), (7.25, high))
        arrow((7.45, high), (7.25, high))
    write_directions(4.5, 12.75)


@figure
def checks_error():
    """The error of both numerical derivatives of x⁵ at 1.1 against their step."""
    f = lambda x: x * x * x * x * x
    x = 1.1
    u = 1.1e-16
    steps = 10.0 ** np.arange(-16, 0.26, 0.25)
    exact = 5 * x**4
    central = []
    complex_step = []
    for h in steps:
        slope = (f(x + h) - f(x - h)) / (2 * h)
        central.append(abs(slope / exact - 1))
        slope = f(x + 1j * h).imag / h
        complex_step.append(abs(slope / exact - 1))
    axes = panels(1, width=5, height=4.6, layout="constrained")
    of_central = {"color": MIDDLE, "markersize": 4, "label": "central differences"}
    axes.loglog(steps, np.maximum(central, u), "o-", **of_central)
    of_step = {"color": DARK, "markersize": 3, "label": "complex step"}
    axes.loglog(steps, np.maximum(complex_step, u), "s--", **of_step)
    for bound in (2 * steps**2 / x**2, u * x / (5 * steps)):
        axes.loglog(steps, bound, ":", color=DARK, linewidth=1)
    write(1e-3, 1e-8, "2 h² / x²", "right-on", size=11)
    write(2e-12, 1e-7, "u x / (5 h)", "left-on", size=11)
    axes.set_title("the derivative of x⁵ at x = 1.1", size=12)
    axes.set(xlabel="h", ylabel="relative error (at least u = 1.1e-16)", ylim=(2e-17, 30))
    axes.legend(loc="upper center", ncols=1)


@figure
def dilated_convolution():
    """Which inputs an output depends on, and which outputs an input's gradient comes from."""
    canvas(5, 6.3)
    n = 16
    gap = 0.29
    height = 0.62
    for bottom, forward in ((3.6, True), (0.4, False)):
        marked = {(3, n - 1)} if forward else {(0, 0)}
        lines = set()
        for level in (2, 1, 0) if forward else (0, 1, 2):
            for low, tap in np.ndindex(n, 3):
                ends = (level, low), (level + 1, low + tap * 2**level)
                start, end = ends[::-1] if forward else ends
                if start in marked and ends[1][1] < n:
                    marked.add(end)
                    lines.add(ends)
        place = lambda row, t, bottom=bottom: (0.33 + gap * t, bottom + height * row)
        for low, high in sorted(lines):
            line(place(*low), place(*high), linewidth=0.8, zorder=0)
        for at in np.ndindex(4, n):
            color = DARK if at in marked else "white"
            edge = DARK if at in marked else MIDDLE
            circle = plt.Circle(place(*at), 0.085, facecolor=color, edgecolor=edge)
            plt.gca().add_patch(circle)
        for row, text in enumerate(("d = 1", "d = 2", "d = 4")):
            x = 0.28 if forward else 0.28 + gap * 15 + 0.1
            side = "right" if forward else "left"
            middle = bottom + height * (row + 0.5)
            write(x, middle, text, side, size=10, color=DARK)
        names = ("inputs x", "outputs y") if forward else ("dx", "dy")
        write(2.5, bottom - 0.17, names[0], "below", size=11)
        write(2.5, bottom + 3 * height + 0.14, names[1], "above", size=11)
    write(2.5, 6.0, "forward: what the last output sees (d: dilation)", "on", weight="bold")
    write(2.5, 2.8, "backward: what the first input's gradient collects", "on", weight="bold")
