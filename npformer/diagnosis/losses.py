"""The loss, against the outputs and at the start, and its gradient, against differences of the loss."""

import contextlib
import math
import re

import numpy as np

from npformer import reference, tree
from npformer.arrays import on_host

STEP, TOLERANCE = 1e-7, 1e-3  # of the direction, relative to its largest part; of the slope


def of_outputs(case):
    """The loss against that computed from the outputs."""
    y, counted = case.outputs(case.inputs), case.is_counted(case.inputs, case.targets)
    if case.n_answers is None:
        is_number = case.targets.dtype.kind == "f"
        raise ValueError("it predicts numbers" if is_number else "outputs(…) are not known to be logits")
    if case.causal is None and counted.sum() != case.n:
        raise ValueError(f"not known which targets count: loss_and_grad counts {case.n} of {counted.size}")

    def of(inputs, targets, counted=None, y=None):
        counted = case.is_counted(inputs, targets) if counted is None else counted
        y = case.outputs(inputs) if y is None else y
        return reference.cross_entropy(y, np.where(counted, targets, -1), ignore_id=-1)[0]

    agrees = lambda x, loss=case.loss, within=2e-3: abs(loss - x) < within * max(1, abs(x))
    if agrees(expected := of(case.inputs, case.targets, counted, y)):
        return
    seen = f"loss_and_grad gives {case.loss:.4g}, the outputs of the same rows {expected:.4g}"
    single = [[x[i : i + 1] if len(x) == len(y) else x for x in case.rows] for i in range(len(y))]
    if all(agrees(of(*case.split(row)), case.gradient(*row)[0]) for row in single):
        yield "loss differs", f"{seen}, but each row alone agrees: rows are mixed, or sorted without their targets"
        return
    known = [("not the mean", "their sum", expected * counted.sum())]
    if case.causal is not None:
        (*others, ids), targets, whole = case.inputs, case.targets, case.rows[case.causal]
        own, padded = "with the input as targets", f"with the {(~counted).mean():.0%} of targets that are padding"
        known += [
            ("padding counted", padded, of(case.inputs, targets, np.ones_like(counted))),
            ("targets not shifted", own, of(case.inputs, ids)),
            ("targets not shifted", "with the targets as the input", of([*others, targets], targets)),
        ]
        with contextlib.suppress(ValueError):  # it may be too long
            known.append(("targets not shifted", own, of([*others, whole], whole)))
    name, what, x = min(known, key=lambda each: abs(each[-1] - case.loss))
    yield (name, f"{seen}, and {what} {x:.4g}") if agrees(x, within=2e-4) else ("loss differs", seen)


def divided(case):
    """The loss and the gradient for another number of targets, and this number."""
    n, count, before = case.n, case.model.count(*case.rows), norm(case.grads)
    ratios_of = lambda loss, grads, _: (loss / case.loss, norm(grads) / max(before, 1e-30))
    ratios = ratios_of(*case.gradient(n_tokens=2 * n))
    if norm(case.grads) != before:
        yield "gradients overwritten", "a gradient is another one after the next call"
    elif not np.allclose(ratios, 0.5, atol=0.01):
        again = ratios_of(*case.gradient(n_tokens=2 * n))
        if np.allclose(ratios, again, rtol=1e-4):
            seen = "with twice the n_tokens, the loss is {:.2g} times as large, the gradient {:.2g} times, not 0.5"
            yield "n_tokens ignored", seen.format(*ratios)
        else:
            seen = "two equal calls give {:.4g} and {:.4g} times the first loss, {:.4g} and {:.4g} times its gradient"
            yield "not repeatable", seen.format(*np.ravel([ratios, again], "F"))
    if count != n or (case.causal is not None and n != case.is_word(case.targets).sum()):
        yield "wrong count", f"count(*batch) is {count}, loss_and_grad counts {n} targets"


def at_the_start(case):
    """The loss at the start, and what dropout does to it."""
    least, rate = np.log(case.n_answers or 1), getattr(case.model, "dropout", 0)
    if not np.isfinite(case.loss):
        yield "not finite", f"the loss is {case.loss}"
    elif tree.not_finite(case.grads):
        yield "not finite", f"the gradient holds NaN or infinity, the loss is {case.loss:.4g}"
    elif least and case.is_new and not 0.4 * least < case.loss < least + 3:  # outputs of variance 1 to 2 add half of it
        yield "start far from ln V", f"the first loss is {case.loss:.3g}, ln {case.n_answers} = {least:.3g}"
    if rate > 0.5:
        yield "dropout", f"dropout={rate:g}"
    if rate and len({case.loss, *(case.loss_of(dropout_key=key) for key in (1, 2))}) < 3:
        yield "dropout has no effect", f"dropout={rate:g}, but losses with other keys, or none, are equal"


def differences(case):
    """The gradient against differences of the loss, along a direction in which each parameter has an equal part."""
    own = {name: f for name, f in vars(case.ops).items() if name in case.ops.names() and name not in case.ops.kernels}
    rng, key = np.random.default_rng(7), 1 if getattr(case.model, "dropout", 0) else None
    options = {"backend": reference.ops.replaced(**own), "dropout_key": key}  # in float64, which kernels may not take
    flat = np.concatenate([on_host(x).ravel() for _, x in tree.leaves(case.params)], dtype=np.float64)
    along = np.resize(rng.standard_normal(65_537, np.float32), flat.shape)  # a prime: no two arrays have the same
    params, parts = tree.view_as(flat, case.params), tree.leaves(tree.view_as(along, case.params))
    for (_, x), (_, d) in zip(tree.leaves(params), parts, strict=True):
        x += d * max(0.2 * size(x), 0.02)  # at 0 a ReLU has no derivative
    grads = case.gradient(params=params, **options)[1]
    norms, sizes = np.array([*map(reference.global_norm, grads.values())]), [g.size for g in grads.values()]
    scales = norms + 1e-2 * np.median(norms[norms > 0] if norms.any() else 1.0)
    for (_, d), scale in zip(parts, scales, strict=True):
        d /= scale
    h, ends = STEP * float(scales.min()), np.cumsum(sizes)
    if 4e-15 * abs(case.loss) > 0.1 * h:
        raise ValueError(f"the loss, {case.loss:.3g}, changes by less than it is rounded")
    begins = ends - sizes

    def compared(a, b, h=h):  # the error for the entries a to b, the slope of the loss, and what the gradient says
        def loss_after(step):
            flat[a:b] += step * along[a:b]
            return case.loss_of(params, **options)

        slope = (loss_after(h) - loss_after(-2 * h)) / (2 * h)  # it stays there, as h is tiny
        within = [(i, g.ravel()[max(0, a - i) : max(0, b - i)]) for i, g in zip(begins, grads.values(), strict=True)]
        told = sum(float(g @ along[max(a, i) :][: g.size]) for i, g in within)
        return abs(slope - told), slope, told

    a, b = 0, flat.size
    if compared(a, b)[0] <= TOLERANCE * len(ends) ** 0.5:
        return
    while b - a > 1:  # halve the place
        a, b = max(((a, (a + b) // 2), ((a + b) // 2, b)), key=lambda half: compared(*half)[0])
    which = int(np.searchsorted(ends, a, side="right"))
    path, begin = list(grads)[which], begins[which]
    error, slope, told = compared(begin, ends[which])
    if error > TOLERANCE:
        along[a], entry = 1, [int(i) for i in np.unravel_index(a - begin, grads[path].shape)]
        seen = f"along {path} the loss changes by {slope:.4g}, the gradient says {told:.4g}"
        seen += "; at its entry {}, by {:.2g} and {:.2g}".format(entry, *compared(a, b, 1e-6)[1:])
        yield "wrong gradient" if norms[which] else "no gradient", seen


def by_parameter(case):
    """The gradient of each parameter."""
    if case.compute and (T := min(x.shape[1] for x in case.inputs if x.ndim > 1)) < 3:
        raise ValueError(f"the inputs have length {T}, and scores of so few tokens may have no gradient")
    for path, g in case.grads.items():
        none = (~g.any(axis=0)).mean() if g.ndim == 2 and path.endswith("weight") else float(not g.any())
        if none > 0.5 or (none > 0.2 and not re.search("output|hidden", path)):  # some units of a ReLU may be 0
            yield "no gradient", f"{none:.0%} of the units of {path} get a gradient of exactly 0"


def size(x):
    """The root of the mean square, not below a tiny number."""
    return max(reference.global_norm(x) / x.size**0.5, 1e-12)


def norm(grads):
    """The norm of a gradient, given by path."""
    return math.hypot(*map(reference.global_norm, grads.values()))
