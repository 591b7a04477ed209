"""The gradient: against differences of the loss, and of each parameter."""

import re

import numpy as np

from npformer import reference, tree
from npformer.arrays import beside, on_host
from npformer.diagnosis.subject import size

STEP = 1e-7  # of the direction, relative to its largest part
TOLERANCE = 1e-3  # of the slope, in which each array has a part of about 1
MOVE = 0.2  # by which parameters are moved, relative to their size, as a ReLU has no derivative at 0
LEAST_MOVE = 0.02  # where they are zeros


def differences(case):
    """The gradient against differences of the loss, along a direction in which each parameter has an equal part."""
    direction = Direction(case)
    n_arrays = len(direction.grads)
    if direction.error(0, direction.size) <= TOLERANCE * n_arrays**0.5:
        return
    entry = direction.worst_entry()
    path, begin, end = direction.array_of(entry)
    if direction.error(begin, end) <= TOLERANCE:
        return
    index = [int(i) for i in np.unravel_index(entry - begin, direction.grads[path].shape)]
    of_array = direction.slopes(begin, end)
    direction.along[entry] = 1
    of_entry = direction.slopes(entry, entry + 1, 1e-6)
    seen = f"along {path} the loss changes by {of_array[0]:.4g}, the gradient says {of_array[1]:.4g}"
    seen += f"; at its entry {index}, by {of_entry[0]:.2g} and {of_entry[1]:.2g}"
    yield "wrong gradient" if direction.grads[path].any() else "no gradient", seen


class Direction:
    """A direction in which the loss is followed, from a place beside the parameters.

    Each array has an equal part in the slope of the loss, so that no error is hidden beside a larger gradient. All is
    computed by the reference in float64, with the operations that the backend has of its own: a kernel may not take it.
    """

    def __init__(self, case):
        self.case = case
        is_own = {name: f for name, f in vars(case.ops).items() if name in case.ops.names()}
        is_own = {name: f for name, f in is_own.items() if name not in case.ops.kernels}
        dropout_key = 1 if getattr(case.architecture, "dropout", 0) else None
        self.options = {"backend": reference.ops.replaced(**is_own), "dropout_key": dropout_key}
        arrays = [on_host(x).ravel() for _, x in tree.leaves(case.params)]
        self.flat = np.concatenate(arrays, dtype=np.float64)
        self.params = tree.view_as(self.flat, case.params)
        numbers = np.random.default_rng(7).standard_normal(65_537, np.float32)  # a prime: no two arrays have the same
        self.along = np.resize(numbers, self.flat.shape)
        self.ends = np.cumsum([x.size for x in arrays])
        parts = tree.leaves(tree.view_as(self.along, case.params))
        for (_, x), (_, along) in zip(tree.leaves(self.params), parts, strict=True):
            x += along * length_of_move(x)
        self.grads = case.gradient(params=self.params, **self.options)[1]
        norms = np.array([reference.global_norm(g) for g in self.grads.values()])
        usual = np.median(norms[norms > 0]) if norms.any() else 1.0
        scales = norms + 1e-2 * usual
        for (_, along), scale in zip(parts, scales, strict=True):
            along /= scale
        self.step = STEP * float(scales.min())
        if 4e-15 * abs(case.loss) > 0.1 * self.step:
            raise ValueError(f"the loss, {case.loss:.3g}, changes by less than it is rounded")

    @property
    def size(self):
        """The number of entries."""
        return self.flat.size

    def slopes(self, begin, end, step=None):
        """The slope of the loss along some entries of the direction, by a difference and as the gradient has it."""
        step = step or self.step
        before = self.flat[begin:end].copy()
        losses = []
        for sign in (1, -1):
            self.flat[begin:end] = before + sign * step * self.along[begin:end]
            losses.append(self.case.loss_of(self.params, **self.options))
        self.flat[begin:end] = before
        return (losses[0] - losses[1]) / (2 * step), self._slope_of_gradient(begin, end)

    def error(self, begin, end):
        """How far the two slopes are from one another."""
        by_difference, by_gradient = self.slopes(begin, end)
        return abs(by_difference - by_gradient)

    def worst_entry(self):
        """An entry with an error, found by halving."""
        begin, end = 0, self.size
        while end - begin > 1:
            middle = (begin + end) // 2
            begin, end = max((begin, middle), (middle, end), key=lambda half: self.error(*half))
        return begin

    def array_of(self, entry):
        """The path of the array that has this entry, and where it begins and ends."""
        i = int(np.searchsorted(self.ends, entry, side="right"))
        path = list(self.grads)[i]
        return path, self.ends[i] - self.grads[path].size, self.ends[i]

    def _slope_of_gradient(self, begin, end):
        slope = 0.0
        for array_end, g in zip(self.ends, self.grads.values(), strict=True):
            first = max(begin, array_end - g.size)
            last = min(end, array_end)
            if first < last:
                entries = g.ravel()[first - array_end + g.size : last - array_end + g.size]
                slope += float(entries @ self.along[first:last])
        return slope


def by_parameter(case):
    """Whether each parameter has a gradient."""
    if case.interface.compute:
        T = min(x.shape[1] for x in case.inputs if x.ndim > 1)
        if T < 3:
            raise ValueError(f"the inputs have length {T}, and scores of so few tokens may have no gradient")
    missing = units_without_gradient(case.grads)
    if missing:  # beside zeros, such as those with which an adapter begins, others may have one
        elsewhere = units_without_gradient(case.gradient(params=moved(case.params))[1])
        for path in missing.keys() & elsewhere.keys():
            yield "no gradient", f"{missing[path]:.0%} of the units of {path} get a gradient of exactly 0"


def units_without_gradient(grads):
    """The share of the units that have no gradient, by path, if it is large."""
    shares = {}
    for path, g in grads.items():
        is_map = g.ndim == 2 and path.endswith("weight")
        share = (~g.any(axis=0)).mean() if is_map else float(not g.any())
        # Of a few tokens, many units of a ReLU may be 0: half of them where tokens are alike, more after training.
        usual = 0.99 if re.search("output|hidden", path) else 0.2
        if share > usual:
            shares[path] = share
    return shares


def moved(params):
    """The parameters in another place near them."""
    rng = np.random.default_rng(7)

    def other(x):
        move = length_of_move(on_host(x)) * rng.standard_normal(x.shape)
        return x + beside(move.astype(x.dtype), x)

    return tree.map_leaves(other, params)


def length_of_move(x):
    """How far a parameter is moved, so that it is no longer where the loss may have no derivative."""
    return max(MOVE * size(x), LEAST_MOVE)
