"""The gradient: against differences of the loss, and of each parameter."""

import re

import numpy as np

from npformer import reference, tree
from npformer.diagnosis.finding import sign
from npformer.diagnosis.subject import length_of_move
from npformer.errors import UserError

STEP = 1e-7  # of the direction, relative to its largest part
STEP_OF_ENTRY = 1e-6
TOLERANCE = 1e-3  # of the slope, in which each array has a part of about 1


def differences(subject):
    """The gradient against differences of the loss, along a direction in which each parameter has
    an equal part.
    """
    line = Line(subject)
    n_arrays = len(subject.params_by_path)
    if line.error(0, line.flat.size) <= TOLERANCE * n_arrays**0.5:
        return
    entry = line.worst_entry()
    path, begin, end = line.array_of(entry)
    loss, gradient = line.slopes(begin, end)
    if abs(loss - gradient) <= TOLERANCE:
        return
    index = np.unravel_index(entry - begin, subject.params_by_path[path].shape)
    loss = line.derivative(entry)
    gradient = 0.0 + line.gradient[entry]  # -0.0 is told as 0
    place = f"{path} {[int(i) for i in index]}"
    message = f"at {place} the slope of the loss is {loss:.5g}, the gradient {gradient:.5g}"
    if line.gradient[begin:end].any():
        yield sign("wrong gradient", message)
    else:
        yield no_gradient(subject, path, message)


class Line:
    """A line along which the loss is followed, through a place beside the parameters.

    Each array has an equal part in the slope of the loss, so that no error is hidden beside a
    larger gradient. All is computed in float64. ``flat``, ``direction`` and ``gradient`` have an
    entry for each parameter.
    """

    def __init__(self, subject):
        self.subject = subject
        self.options = options_of(subject)
        self.flat = joined(subject.params_by_path)
        self.params = tree.view_as(self.flat, subject.params)
        # The length is a prime, so that no two arrays have the same numbers.
        numbers = np.random.default_rng(7).standard_normal(65_537, np.float32)
        self.direction = np.resize(numbers, self.flat.shape)
        parts = dict(tree.leaves(tree.view_as(self.direction, subject.params)))
        for path, x in tree.leaves(self.params):
            x += parts[path] * length_of_move(x)
        grads = subject.gradient(params=self.params, **self.options).grads
        self.gradient = joined(grads)
        scales = scales_of(grads)
        for part, scale in zip(parts.values(), scales, strict=True):
            part /= scale
        self.step = STEP * float(scales.min())
        loss = subject.computed.loss
        if 4e-15 * abs(loss) > 0.1 * self.step:
            raise UserError(f"the loss, {loss:.3g}, changes by less than it is rounded")

    def slopes(self, begin, end):
        """The slope of the loss along some entries, by a difference and as the gradient has it."""
        direction = self.direction[begin:end]
        by_difference = self._difference(begin, end, self.step * direction) / (2 * self.step)
        return by_difference, float(self.gradient[begin:end] @ direction)

    def derivative(self, entry):
        """The derivative of the loss by one entry."""
        return self._difference(entry, entry + 1, STEP_OF_ENTRY) / (2 * STEP_OF_ENTRY)

    def error(self, begin, end):
        """How far the two slopes are from one another."""
        by_difference, by_gradient = self.slopes(begin, end)
        return abs(by_difference - by_gradient)

    def worst_entry(self):
        """An entry with an error, found by halving: the half with the larger error has one."""
        begin = 0
        end = self.flat.size
        while end - begin > 1:
            middle = (begin + end) // 2
            if self.error(middle, end) > self.error(begin, middle):
                begin = middle
            else:
                end = middle
        return begin

    def array_of(self, entry):
        """The path of the array that has this entry, and where it begins and ends."""
        leaves = tree.leaves(self.params)
        ends = np.cumsum([x.size for _, x in leaves])
        i = np.searchsorted(ends, entry, side="right")
        path, x = leaves[i]
        return path, ends[i] - x.size, ends[i]

    def _difference(self, begin, end, move):
        """The difference of the loss between a move and its opposite."""
        before = self.flat[begin:end].copy()
        self.flat[begin:end] = before + move
        after = self.subject.loss_of(self.params, **self.options)
        self.flat[begin:end] = before - move
        opposite = self.subject.loss_of(self.params, **self.options)
        self.flat[begin:end] = before
        return after - opposite


def joined(arrays):
    """The entries of all arrays, given by path, in float64."""
    return np.concatenate([x.ravel() for x in arrays.values()], dtype=np.float64)


def options_of(subject):
    """What the loss is computed with: the reference, and dropout if the model has it.

    Kernels may not take float64. Operations that a user's backend has of its own are no kernels,
    and may be what is wrong: they are examined.
    """
    ops = subject.ops
    names = set(ops.names()) - ops.kernels.keys()
    functions = {name: f for name, f in vars(ops).items() if name in names}
    dropout_key = 1 if getattr(subject.architecture, "dropout", 0) else None
    return {"backend": reference.ops.replaced(**functions), "dropout_key": dropout_key}


def scales_of(grads):
    """The norm of each array's gradient, and not 0 where it is much smaller than usual."""
    norms = np.array([reference.global_norm(g) for g in grads.values()])
    usual = np.median(norms[norms > 0]) if norms.any() else 1.0
    return norms + 1e-2 * usual


def by_parameter(subject):
    """Whether each parameter has a gradient."""
    if subject.interface.compute:
        T = min(x.shape[1] for x in subject.inputs if x.ndim > 1)
        if T < 3:
            raise UserError(
                f"the inputs have length {T}, and scores of so few tokens may have no gradient"
            )
    missing = units_without_gradient(subject.computed.grads)
    if missing:  # beside zeros, such as those with which an adapter begins, others may have one
        elsewhere = units_without_gradient(subject.grads_beside)
        for path, share in missing.items():
            if path in elsewhere:
                message = f"{share:.0%} of the units of {path} get a gradient of exactly 0"
                yield no_gradient(subject, path, message)


def no_gradient(subject, path, message):
    """The sign of an array without a gradient, of which the message is true if there are zeros."""
    if path in subject.computed.missing:
        message = f"loss_and_grad returns no gradient of {path}"
    return sign("no gradient", message)


def units_without_gradient(grads):
    """The share of the units that have no gradient, by path, if it is large."""
    shares = {}
    for path, g in grads.items():
        is_map = g.ndim == 2 and path.endswith("weight")
        share = (~g.any(axis=0)).mean() if is_map else float(not g.any())
        # Of a few tokens, many units of a ReLU may be 0: half of them where tokens are alike, more
        # after training.
        usual = 0.99 if re.search("output|hidden", path) else 0.2
        if share > usual:
            shares[path] = share
    return shares
