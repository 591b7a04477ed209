"""What a step changes, as flat arrays: the state of a training, and the update of parameters."""

from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.errors import UserError
from npformer.reference import derive_key
from npformer.training.precision import LossScale, Precision


class TrainState:
    """The parameters, the optimizer's moments, the number of steps, and the loss scale."""

    def __init__(self, flat_params, like, moments, ops, settings):
        self.asarray = ops.device.asarray
        self.flat_params = flat_params  # (n,), updated in place
        self.params = tree.fixed(tree.view_as(flat_params, like))  # views into it
        self.moments = moments  # arrays of the optimizer, or the part of them that this rank has
        self.flat_grads = np.zeros_like(flat_params)  # (n,), the gradient of the last step
        self.grads = tree.view_as(self.flat_grads, like)  # views into it
        self.precision = Precision(settings.precision, ops, flat_params, self.params)
        self.seed = settings.seed
        self.n_steps = 0  # that are done
        self.validations: list[dict] = []  # the results of all so far
        self.n_logged = 0  # records in the log
        self.files: set = set()  # checkpoints of this training, which it may write over

    @property
    def key(self):
        """The key of the next step's dropout."""
        return derive_key(self.seed, self.n_steps)

    @property
    def arrays(self):
        """Everything that an update changes."""
        return [self.flat_params, *self.moments.values()]

    @contextmanager
    def restored(self):
        """Take back all updates at the end of the block."""
        before = [x.copy() for x in self.arrays]
        try:
            yield
        finally:
            for x, old in zip(self.arrays, before, strict=True):
                x[...] = old

    @property
    def facts(self):
        """What a checkpoint has of it beside the arrays: a dict that JSON can hold."""
        facts = {name: getattr(self, name) for name in ("n_steps", "validations", "n_logged")}
        if self.precision.has_loss_scale:
            facts["loss_scale"] = list(self.precision.loss_scale)
        return facts

    def set(self, params, moments, facts):
        """Take all values from host memory; the moments are those that this rank has.

        ``params`` are arrays by their paths.
        """
        for path, x in tree.leaves(self.params):
            x[...] = self.asarray(params[path])
        for name, x in self.moments.items():
            x[...] = self.asarray(moments[name])
        self.n_steps = facts["n_steps"]
        self.n_logged = facts["n_logged"]
        self.validations = list(facts["validations"])
        if self.precision.has_loss_scale and "loss_scale" in facts:
            self.precision.loss_scale = LossScale(*facts["loss_scale"])


class FlatOptimizer:
    """Applies an optimizer to the flat parameters of a ``TrainState``, in as few calls as possible.

    ``pieces`` are those of ``pieces_of``.
    """

    def __init__(self, optimizer, ops, pieces):
        self.optimizer, self.ops = optimizer, ops
        self.pieces = [piece for piece in pieces if not piece.frozen]
        self.frozen = [piece.place for piece in pieces if piece.frozen]

    def init(self, flat_params):
        """The moments before the first step, a dict of flat arrays."""
        own = self.own(flat_params)
        return {name: np.zeros_like(own) for name in self.optimizer.moments}

    def clear_frozen(self, flat_grads):
        """Write 0 to the gradient of what is not updated, so that the norm does not count it."""
        for place in self.frozen:
            flat_grads[place] = 0

    def norm(self, flat_grads):
        """The norm of the gradient. (If ranks divide it, each has a part of it.)"""
        return self.ops.global_norm(flat_grads)

    def update(self, state, step, grad_scale, lr):
        """Update the parameters and moments of a ``TrainState``, by ``Optimizer.update``."""
        for piece in self.pieces:
            moments = {name: x[piece.moments] for name, x in state.moments.items()}
            param = state.flat_params[piece.place]
            grad = state.flat_grads[piece.place]
            self.optimizer.update(
                self.ops, param, grad, moments, step, grad_scale, lr, decay=piece.decay
            )

    def own(self, flat):
        """The part of a flat array whose parameters this process updates."""
        return flat

    def whole(self, own):
        """The inverse of ``own``, in the process that saves checkpoints."""
        return own


class Piece(NamedTuple):
    """Neighbouring parameters with the same settings; of several ranks, those of one rank.

    Frozen parameters have moments, too, which stay 0: all arrays of a training, and of its
    checkpoint, have the places of the flat parameters.
    """

    place: slice  # in the flat arrays
    moments: slice  # in the arrays of the moments; another place if ranks divide it
    frozen: bool
    decay: bool


def pieces_of(params, frozen, decays) -> list[Piece]:
    """Divide the flat parameters into as few pieces as possible.

    ``frozen`` are paths of arrays or of dicts of arrays that are never updated; ``decays(array)``
    says whether the weight decay applies to it. A path that matches no parameter, or frozen=all
    parameters, is a ``UserError``.

    >>> layer = {"weight": np.zeros((3, 3)), "bias": np.zeros(3)}
    >>> params = {"table": np.zeros((2, 3)), "layer": layer}
    >>> for piece in pieces_of(params, frozen=["table"], decays=lambda x: x.ndim > 1):
    ...     print(piece.place, piece.frozen, piece.decay)
    slice(0, 6, None) True True
    slice(6, 15, None) False True
    slice(15, 18, None) False False
    """
    leaves = tree.leaves(params)
    for name in frozen:
        if not any(tree.is_in(path, name) for path, _ in leaves):
            such = f"such as {leaves[0][0]!r} or {list(params)}"
            raise UserError(f"frozen has {name!r}, expected paths of parameters {such}")

    def kind_of(leaf):
        path, x = leaf
        return any(tree.is_in(path, name) for name in frozen), decays(x)

    pieces = []
    stop = 0
    for kind, neighbours in groupby(leaves, key=kind_of):
        start, stop = stop, stop + sum(x.size for _, x in neighbours)
        place = slice(start, stop)
        pieces.append(Piece(place, place, *kind))
    if all(piece.frozen for piece in pieces):
        what = f"frozen={list(frozen)} includes all parameters"
        raise UserError(f"{what}, expected some that are trained")
    return pieces
