"""Draw the figures of the pages about gradients from layer normalisation on."""

import sys

import numpy as np

from scripts.figures import drawing  # needs pip install -e .
from scripts.figures.drawing import (
    DARK,
    DASHED,
    LIGHT,
    MIDDLE,
    arrow,
    beside_arrows,
    box,
    canvas,
    figure,
    matrix,
    node,
    plt,
    rung,
)

import npformer as nf
from npformer.reference.math.activations import ACTIVATIONS


@figure
def gradients_layer_norm():
    """The gradient of x̂ keeps only its part along the circle on which all x̂ lie."""
    axes = canvas(5.0, 4.7)
    centre, radius, turn = np.array([1.75, 2.05]), 1.5, 0.4
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(
        centre[0] + radius * np.cos(angle),
        centre[1] + radius * np.sin(angle),
        color=DARK,
        linewidth=1.2,
    )
    direction, around = (
        np.array([np.cos(turn), np.sin(turn)]),
        np.array([-np.sin(turn), np.cos(turn)]),
    )
    x_hat, x = centre + radius * direction, centre + 2.6 * direction
    kept = x_hat + 1.4 * around
    end = kept + 0.75 * direction
    dashed = {"color": DARK, "linewidth": 1, "linestyle": DASHED}
    axes.plot(*zip(x_hat, x, strict=True), **dashed)
    axes.plot(*zip(kept, end, strict=True), **dashed)
    arrow(axes, centre, x_hat)
    arrow(axes, x_hat, end)
    arrow(axes, x_hat, kept)
    axes.plot(*centre, "o", color=DARK, markersize=4)
    axes.plot(*x, "o", color=DARK, markersize=5)
    axes.text(*(centre + 0.6 * direction + 0.1 * around), "x̂", ha="center", va="bottom", size=14)
    axes.text(x[0], x[1] + 0.12, "x − mean(x)", ha="center", va="bottom", size=12)
    axes.text(end[0] - 0.2, end[1] + 0.08, "dx̂ − mean(dx̂)", ha="center", va="bottom", size=12)
    axes.text(
        kept[0] - 0.12, kept[1] + 0.1, "what is kept: dx / rstd", ha="right", va="bottom", size=12
    )
    axes.text(centre[0] - 0.1, centre[1] - 0.1, "0", ha="right", va="top", size=12)
    axes.text(
        2.5, 0.3, "the rows with mean 0; the circle has radius √D", ha="center", va="top", size=12
    )


@figure
def gradients_activations():
    """The curves of three activations and their slopes."""
    _, panels = plt.subplots(2, 1, figsize=(5, 5.6), sharex=True, layout="tight")
    x = np.linspace(-4, 3, 701)
    styles = {"relu": (0, ()), "gelu": (0, (5, 2)), "silu": (0, (1, 1.5))}
    for name, style in styles.items():
        f, f_backward = ACTIVATIONS[name]
        panels[0].plot(x, f(x), color="black", linestyle=style, label=name)
        slope = f_backward(np.ones_like(x), x)
        if name == "relu":
            slope[abs(x) < 1e-9] = np.nan  # a jump, not a line
        panels[1].plot(x, slope, color="black", linestyle=style)
    panels[0].set(ylabel="f(x)")
    panels[1].set(ylabel="slope f′(x)", xlabel="x")
    panels[0].legend(frameon=False)
    for axes in panels:
        axes.axhline(0, color=MIDDLE, linewidth=0.8, zorder=0)
        axes.axvline(0, color=MIDDLE, linewidth=0.8, zorder=0)


@figure
def embedding_rows():
    """A look-up copies rows; its backward pass adds rows."""
    axes = canvas(5, 5.9)
    ids, dy = np.array([2, 0, 2]), np.array([[1.0, -1.0], [2.0, 0.0], [10.0, 5.0]])
    table = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]])
    dtable = nf.embedding_backward(dy, ids, (4, 2))
    for top, left, right, names, forward in (
        (5.1, table, table[ids], ("table E", "Y"), True),
        (2.3, dtable, dy, ("dE", "dY"), False),
    ):
        matrix(axes, 0.8, top, left, title=names[0])
        matrix(axes, 3.2, top - 0.25, right, title=names[1])
        for row in range(4):
            axes.text(0.65, top - 0.25 - 0.5 * row, f"{row}", ha="right", va="center", color=DARK)
        for place, row in enumerate(ids):
            axes.text(4.3, top - 0.5 - 0.5 * place, f"id {row}", va="center", color=DARK)
            ends = (1.84, top - 0.25 - 0.5 * row), (3.16, top - 0.5 - 0.5 * place)
            arrow(axes, *(ends if forward else ends[::-1]))
    axes.text(2.5, 5.65, "forward: rows are copied", ha="center", weight="bold")
    axes.text(2.5, 2.82, "backward: rows are added", ha="center", weight="bold")


@figure
def positions_rotation():
    """Steps rotate each pair; the dot product depends on the distance only."""
    figure = plt.figure(figsize=(5, 6.6))
    turn = np.linspace(0, 2 * np.pi, 200)
    encoding = nf.sinusoidal_encoding(101, 64)
    for i, (frequency, name) in enumerate(((1.0, "pair 0, ω = 1"), (0.1, "pair 1, ω = 0.1"))):
        axes = figure.add_axes(
            (0.03 + 0.49 * i, 0.56, 0.46, 0.36), aspect="equal", xlim=(-1.4, 1.4), ylim=(-1.4, 1.4)
        )
        axes.set_axis_off()
        axes.plot(np.cos(turn), np.sin(turn), color=MIDDLE)
        for position in range(7):
            x, y = np.sin(frequency * position), np.cos(frequency * position)
            axes.plot([0, x], [0, y], color=MIDDLE, linewidth=0.8)
            axes.plot(x, y, "o", color=DARK, markersize=5)
            if i == 0 or position % 3 == 0:
                axes.text(1.2 * x, 1.2 * y, f"{position}", ha="center", va="center", size=11)
        axes.set_title(f"{name} (D = 8)\nright: sin, up: cos", size=12)
    axes = figure.add_axes((0.14, 0.09, 0.82, 0.36))
    distance = np.arange(-50, 51)
    axes.plot(distance, encoding[50] @ encoding.T, color=DARK)
    axes.axhline(0, color=MIDDLE, linewidth=0.8)
    axes.set(xlabel="distance n of two positions", ylabel="dot product (D = 64)", ylim=(0, 34))


@figure
def cross_entropy_smoothing():
    """Gradient of one token's logit against its distance from the others."""
    V, gaps = 10, np.linspace(0, 10, 201)
    figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for smoothing, style in ((0.0, "--"), (0.1, "-")):
        of_gap = lambda gap, eps=smoothing: nf.cross_entropy(
            gap * np.eye(1, V), np.array([0]), label_smoothing=eps
        )[1]
        gradients = [of_gap(gap)[0, 0] for gap in gaps]
        axes.plot(gaps, gradients, style, color=DARK, label=f"ε = {smoothing:g}")
    best = np.log(1 + 0.9 * V / 0.1)
    axes.axhline(0, color=MIDDLE, linewidth=0.8)
    axes.plot(best, 0, "o", color=DARK)
    axes.annotate("p = q", (best, 0), (best - 1.6, 0.08), arrowprops={"arrowstyle": "->"})
    axes.set(
        ylabel="gradient of the target's logit",
        xlabel="target's logit minus the others' logit (V = 10)",
    )
    axes.legend(frameon=False, loc="lower right")


@figure
def residual_gradients():
    """The gradient goes past the sublayer and through it."""
    axes = canvas(5, 4.9)
    for y, forward in ((3.2, True), (0.7, False)):
        for x, name in ((0.1, "x" if forward else "dx"), (4.3, "s" if forward else "ds")):
            box(axes, x, y - 0.28, 0.6, 0.56, name, color="white", size=14)
        box(axes, 1.75, y - 0.35, 1.3, 0.7, "sublayer f" if forward else "backward\nof f")
        plus = 3.7 if forward else 1.2
        node(axes, plus, y, "+", 0.17, size=15)
        fork = 1.2 if forward else 3.7
        axes.plot([fork, fork, plus], [y, y + 0.85, y + 0.85], color=DARK, linewidth=1.5)
        arrow(axes, (plus, y + 0.85), (plus, y + 0.17))
        if forward:
            ends = ((0.7, y), (1.75, y)), ((3.05, y), (3.53, y)), ((3.87, y), (4.3, y))
        else:
            ends = ((4.3, y), (3.05, y)), ((1.75, y), (1.37, y)), ((1.03, y), (0.7, y))
        for start, end in ends:
            arrow(axes, start, end)
        axes.text(
            2.45, y + 0.93, "x, unchanged" if forward else "ds, unchanged", ha="center", va="bottom"
        )
    axes.text(2.5, 4.6, "forward: s = x + f(x)", ha="center", weight="bold")
    axes.text(2.5, 2.1, "backward: dx = ds + Jᵀ ds", ha="center", weight="bold")


@figure
def layer_backward():
    """The word e₂ of layers.md through an encoder layer, and one loss back to it, with all numbers
    of residual.md.
    """
    axes = canvas(9.0, 12.9)
    e = np.array([[1.0, 0, 1], [0, 1, 1], [1, 1, 0], [0, 2, 0], [2, 0, 0]])
    W_q, W_k = (
        np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]]),
        np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 1]]),
    )
    W_v, W1 = (
        np.array([[1.0, 0, 0], [0, 1, 1], [0, 0, 1]]),
        np.array([[1.0, -1, 0, 0], [0, 1, -1, 1], [0, 0, 1, 1]]),
    )
    W2, b1 = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1]]), np.array([0, 0, 0, -0.5])
    unit, root = (np.ones(3), np.zeros(3)), np.sqrt(3)
    q, k, v = e[1] @ W_q, e @ W_k, e @ W_v
    scores = k @ q
    a = nf.softmax(scores / root)
    z = a @ v
    x, *stats1 = nf.layer_norm(e[1] + z, *unit)
    h = x @ W1 + b1
    fed = nf.relu(h) @ W2
    y, *stats2 = nf.layer_norm(x + fed, *unit)
    dy = y - np.array([0.0, 1, -1])
    ds2, *_ = nf.layer_norm_backward(dy, x + fed, unit[0], *stats2)
    dh = nf.relu_backward(ds2 @ W2.T, h)
    dx = ds2 + dh @ W1.T
    ds1, *_ = nf.layer_norm_backward(dx, e[1] + z, unit[0], *stats1)
    da = v @ ds1
    dscores = nf.softmax_backward(da, a) / root
    dq = dscores @ k
    dk2 = dscores[1] * q
    dv2 = a[1] * ds1
    de = ds1 + dq @ W_q.T + dk2 @ W_k.T + dv2 @ W_v.T
    rungs = [
        ("e₂", e[1], de, "maps W_q, W_k, W_v"),
        ("q₂", q, dq, "keys: scores = k q₂"),
        ("scores", scores, dscores, "divide by √3, softmax"),
        ("a₂", a, da, "weighted sum of the values"),
        ("z₂", z, ds1, "add e₂"),
        ("sum", e[1] + z, ds1, "normalise"),
        ("x₂", x, dx, "x₂ W₁ + b₁"),
        ("h", h, dh, "relu, · W₂"),
        ("fed", fed, ds2, "add x₂"),
        ("sum", x + fed, ds2, "normalise"),
        ("e₂′", y, dy, "L = ½ |e₂′ − t|²"),
    ]
    tops = 12.0 - 1.05 * np.arange(len(rungs))
    tops[1:] -= 0.9  # e₂ is also one of the keys, and one of the values: two rows more
    style = {"peak": 3, "form": "{:.2f}", "width": 0.5}
    for top, (name, value, gradient, text) in zip(tops, rungs, strict=True):
        if name == "q₂":
            rung(axes, 4.5, top, 1.5, ("k₂", k[1]), ("dk₂", dk2), **style)
            beside_arrows(axes, 4.5, top + 1.2, (name, value), (f"d{name}", gradient), **style)
            beside_arrows(axes, 4.5, top + 0.3, ("v₂", v[1]), ("dv₂", dv2), **style)
        else:
            rung(axes, 4.5, top, 0.6, (name, value), (f"d{name}", gradient), **style)
        box(
            axes,
            3.3,
            top - 0.45,
            2.4,
            0.45,
            text,
            color=LIGHT if text.startswith("add") else "white",
            size=11,
        )
    for start, end in ((0, 4), (6, 8)):  # past the sublayer, on both sides
        for sign in (-1, 1):
            outer, inner = 4.5 + sign * 4.25, 4.5 + sign * 1.2
            low, high = tops[end] - 0.22, tops[start] + 0.3
            near = 4.5 + sign * 2.75
            axes.plot([inner, outer, outer], [low, low, high], color=DARK)
            ends = (outer, high), (near, high)
            axes.plot(*zip(*ends, strict=True), color=DARK)
            tip = (
                ((inner + sign * 0.2, low), (inner, low))
                if sign < 0
                else ((near + 0.2, high), (near, high))
            )
            arrow(axes, *tip)
    axes.text(3.9, 12.75, "forward", ha="right", va="center", weight="bold")
    axes.text(5.1, 12.75, "backward", ha="left", va="center", weight="bold")


@figure
def model_backward():
    """The order of the backward passes of a whole model."""
    axes = canvas(5, 6.4)
    left, right, width = 0.1, 2.75, 1.75
    source, target = left + width / 2, right + width / 2
    for x, side, stack in ((left, "source", "encoder"), (right, "target", "decoder")):
        box(axes, x, 1.5, width, 0.75, f"embedding\n({side})")
        box(axes, x, 2.8, width, 0.75, f"{stack},\nN layers")
    box(axes, right, 4.1, width, 0.75, "linear map")
    box(axes, right, 5.4, width, 0.75, "loss", color=MIDDLE)
    for x, y, name in (
        (source, 2.25, "dx"),
        (target, 2.25, "dx"),
        (target, 3.55, "dy"),
        (target, 4.85, "dlogits"),
    ):
        arrow(axes, (x - 0.3, y), (x - 0.3, y + 0.55), linestyle=DASHED)
        arrow(axes, (x, y + 0.55), (x, y), name)
    arrow(axes, (left + width, 3.38), (right, 3.38), linestyle=DASHED)
    arrow(axes, (right, 3.1), (left + width, 3.1))
    axes.text(
        (left + width + right) / 2, 3.45, "memory", ha="center", va="bottom", size=10, color=DARK
    )
    text = "dmemory:\nsum over N\nlayers"
    axes.text((left + width + right) / 2, 3.02, text, ha="center", va="top", size=10, color=DARK)
    box(axes, left, 0.2, 4.4, 0.7, "gradient of a tied table: the sum of three", color="white")
    arrow(axes, (source, 1.5), (source, 0.9))
    arrow(axes, (target - 0.3, 1.5), (target - 0.3, 0.9))
    axes.plot([right + width, 4.75, 4.75], [4.47, 4.47, 0.55], color=DARK, linewidth=1.2)
    arrow(axes, (4.75, 0.55), (4.5, 0.55))
    axes.text(4.8, 2.3, "dweightᵀ", rotation=90, ha="left", va="center", size=10, color=DARK)
    arrow(axes, (0.2, 5.9), (0.65, 5.9), linestyle=DASHED)
    axes.text(0.75, 5.9, "forward, upwards", va="center", size=11)
    arrow(axes, (0.2, 5.5), (0.65, 5.5))
    axes.text(0.75, 5.5, "gradients", va="center", size=11)


@figure
def checks_error():
    """The error of both numerical derivatives of x⁵ at 1.1 against their step."""
    f, x, steps = lambda x: x * x * x * x * x, 1.1, 10.0 ** np.arange(-16, 0.26, 0.25)
    exact = 5 * x**4
    central = [abs((f(x + h) - f(x - h)) / (2 * h) / exact - 1) for h in steps]
    step = [abs(f(x + 1j * h).imag / h / exact - 1) for h in steps]
    figure, axes = plt.subplots(figsize=(5, 4.6), layout="constrained")
    axes.loglog(
        steps,
        np.maximum(central, 1.1e-16),
        "o-",
        color=MIDDLE,
        markersize=4,
        label="central differences",
    )
    axes.loglog(
        steps, np.maximum(step, 1.1e-16), "s--", color=DARK, markersize=3, label="complex step"
    )
    axes.loglog(steps, 2 * steps**2 / x**2, ":", color=DARK, linewidth=1)
    axes.loglog(steps, 1.1e-16 * x / (5 * steps), ":", color=DARK, linewidth=1)
    axes.text(1e-3, 1e-8, "2 h² / x²", ha="left", size=11)
    axes.text(2e-12, 1e-7, "u x / (5 h)", ha="right", size=11)
    axes.set_title("the derivative of x⁵ at x = 1.1", size=12)
    axes.set(xlabel="h", ylabel="relative error (at least u = 1.1e-16)", ylim=(2e-17, 30))
    axes.legend(frameon=False, loc="upper center", ncols=1)


@figure
def dilated_convolution():
    """Which inputs an output depends on, and which outputs an input's gradient comes from."""
    axes = canvas(5, 6.3)
    dilations, n, gap, height = (1, 2, 4), 16, 0.29, 0.62
    for bottom, forward in ((3.6, True), (0.4, False)):
        place = lambda row, t, bottom=bottom: (0.33 + gap * t, bottom + height * row)
        lines, marked = set(), {(3, n - 1)} if forward else {(0, 0)}
        for level in range(3) if not forward else range(2, -1, -1):
            for t, tap in np.ndindex(n, 3):
                lower = t - dilations[level] * tap
                if lower >= 0 and ((level + 1, t) if forward else (level, lower)) in marked:
                    lines.add((level, lower, t))
            marked |= {
                (level, u) if forward else (level + 1, t) for at, u, t in lines if at == level
            }
        for level, u, t in sorted(lines):
            low, high = np.array(place(level, u)), np.array(place(level + 1, t))
            axes.plot(*np.transpose([low, high]), color=DARK, linewidth=0.8, zorder=0)
        for at in np.ndindex(4, n):
            color, edge = (DARK, DARK) if at in marked else ("white", MIDDLE)
            axes.add_patch(plt.Circle(place(*at), 0.085, facecolor=color, edgecolor=edge))
        for row, text in enumerate(("d = 1", "d = 2", "d = 4")):
            x = 0.28 if forward else 0.28 + gap * 15 + 0.1
            side = "left" if forward else "right"
            axes.text(
                x, bottom + height * (row + 0.5), text, ha=side, va="center", size=10, color=DARK
            )
        names = ("inputs x", "outputs y") if forward else ("dx", "dy")
        axes.text(2.5, bottom - 0.17, names[0], ha="center", va="top", size=11)
        axes.text(2.5, bottom + 3 * height + 0.14, names[1], ha="center", va="bottom", size=11)
    axes.text(
        2.5, 6.0, "forward: what the last output sees (d: dilation)", ha="center", weight="bold"
    )
    axes.text(
        2.5, 2.8, "backward: what the first input's gradient collects", ha="center", weight="bold"
    )


@figure
def unrolled_recurrence():
    """The states forward, and their gradients backward."""
    axes = canvas(5, 5.9)
    centres = (0.45, 1.75, 3.05, 4.35)
    digits = "₀₁₂₃"
    for y, forward in ((4.2, True), (1.2, False)):
        for t, x in enumerate(centres):
            name = ("h" if forward else "dh") + digits[t]
            box(axes, x - 0.35, y - 0.28, 0.7, 0.56, name, color=LIGHT if t else "white", size=13)
            if t:
                before = (centres[t - 1] + 0.35, y), (x - 0.35, y)
                arrow(axes, *(before if forward else before[::-1]))
                up = 1 if forward else -1
                arrow(axes, (x, y - 0.75 * up), (x, y - 0.28 * up))
                arrow(axes, (x, y + 0.28 * up), (x, y + 0.75 * up))
                axes.text(
                    x, y + 0.8, ("h" if forward else "ds") + digits[t], ha="center", va="bottom"
                )
                axes.text(x, y - 0.8, ("x" if forward else "dx") + digits[t], ha="center", va="top")
                if not forward and t < 3:
                    axes.text(x + 0.39, y + 0.3, "+", size=16, ha="center", va="center")
    axes.text(2.5, 5.5, "forward", ha="center", weight="bold")
    axes.text(2.5, 2.5, "backward", ha="center", weight="bold")


if __name__ == "__main__":
    sys.exit(drawing.main())
