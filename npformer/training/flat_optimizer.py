"""An optimizer of all parameters as one flat array, some of which may be frozen."""

from itertools import groupby
from typing import NamedTuple

import numpy as np

from npformer import tree


class FlatOptimizer:
    """Applies an optimizer to the flat parameters of a ``TrainState``, in as few calls as possible.

    ``frozen`` are paths of parameters that are never updated.
    """

    def __init__(self, optimizer, ops, state, frozen):
        self.optimizer, self.ops = optimizer, ops
        self.pieces = pieces_of(state.params, frozen, optimizer.decays)
        self.frozen = [piece.place for piece in self.pieces if piece.frozen]

    def init(self, flat_params):
        """The moments before the first step, a dict of flat arrays."""
        own = self.own(flat_params)
        return {name: np.zeros_like(own) for name in self.optimizer.moments}

    def norm(self, flat_grads):
        """The norm of the gradient of the parameters that are updated; that of the others becomes 0."""
        for place in self.frozen:
            flat_grads[place] = 0
        return self.ops.global_norm(flat_grads)

    def update(self, state, **numbers):
        """Update the parameters and the moments of a ``TrainState``; the numbers are those of ``Optimizer.update``."""
        for piece in self.pieces:
            if not piece.frozen:
                moments = {name: x[piece.state] for name, x in state.moments.items()}
                param = state.flat_params[piece.place]
                grad = state.flat_grads[piece.place]
                self.optimizer.update(self.ops, param, grad, moments, decay=piece.decay, **numbers)

    def own(self, flat):
        """The part of a flat array whose parameters this process updates."""
        return flat

    def whole(self, own):
        """The inverse of ``own``, in the process that saves checkpoints."""
        return own


class Piece(NamedTuple):
    """Neighbouring parameters that this process updates, with the same settings."""

    place: slice  # in the flat arrays
    state: slice  # in the arrays of the optimizer's state; another place if ranks divide it
    frozen: bool
    decay: bool


def pieces_of(params, frozen, decays) -> list[Piece]:
    """Divide the flat parameters into as few pieces as possible.

    ``frozen`` are paths of arrays or of dicts of arrays that are never updated; ``decays(array)`` says whether the
    weight decay applies to it. A path that matches no parameter, or frozen=all parameters, is a ``ValueError``.

    >>> params = {"table": np.zeros((2, 3)), "layer": {"weight": np.zeros((3, 3)), "bias": np.zeros(3)}}
    >>> for piece in pieces_of(params, frozen=["table"], decays=lambda x: x.ndim > 1):
    ...     print(piece.place, piece.frozen, piece.decay)
    slice(0, 6, None) True True
    slice(6, 15, None) False True
    slice(15, 18, None) False False
    """
    leaves = tree.leaves(params)
    for name in frozen:
        if not any(is_in(path, name) for path, _ in leaves):
            such = f"such as {leaves[0][0]!r} or {list(params)}"
            raise ValueError(f"frozen has {name!r}, expected paths of parameters {such}")

    def kind_of(leaf):
        path, x = leaf
        return any(is_in(path, name) for name in frozen), decays(x)

    pieces, stop = [], 0
    for kind, neighbours in groupby(leaves, key=kind_of):
        start, stop = stop, stop + sum(x.size for _, x in neighbours)
        pieces.append(Piece(slice(start, stop), slice(start, stop), *kind))
    if all(piece.frozen for piece in pieces):
        raise ValueError(f"frozen={list(frozen)} includes all parameters, expected some that are trained")
    return pieces


def is_in(path, name):
    """Whether a path is ``name`` or begins with it.

    >>> is_in("encoder.0.attention", "encoder.0"), is_in("encoder.01.attention", "encoder.0")
    (True, False)
    """
    return f"{path}.".startswith(f"{name}.")
