"""What a step changes, as flat arrays: the state, the gradients that are given, and the update."""

from itertools import groupby
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.models.batch import checked_results
from npformer.reference import derive_key
from npformer.training.precision import LossScale, Precision


class TrainState:
    """The parameters, the optimizer's moments, the number of steps, and the loss scale."""

    def __init__(self, params, ops, settings):
        self.asarray = ops.device.asarray
        self.flat_params = self.asarray(tree.flatten(params)[0])  # (n,), updated in place
        self.params = tree.fixed(tree.view_as(self.flat_params, params))  # views into it
        self.flat_grads = np.zeros_like(self.flat_params)  # (n,), the gradient of the last step
        self.grads = tree.view_as(self.flat_grads, params)  # views into it
        self.places = places_in(params)  # of each parameter in the flat arrays
        self.precision = Precision(settings.precision, ops, self.flat_params, self.params)
        self.moments: dict = {}  # arrays of the optimizer, or the part of them that this rank has
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

    @property
    def facts(self):
        """What a checkpoint has of it beside the arrays: a dict that JSON can hold."""
        facts = {name: getattr(self, name) for name in ("n_steps", "validations", "n_logged")}
        if self.precision.has_loss_scale:
            facts["loss_scale"] = list(self.precision.loss_scale)
        return facts

    def set(self, params, moments, facts):
        """Take all values from host memory; the moments are those that this rank has."""
        flat, _ = tree.flatten(tree.ordered_like(params, self.params))
        self.flat_params[...] = self.asarray(flat)
        for name, x in self.moments.items():
            x[...] = self.asarray(moments[name])
        self.n_steps = facts["n_steps"]
        self.n_logged = facts.get("n_logged", 0)  # older files have no log
        self.validations = list(facts.get("validations", []))
        if self.precision.has_loss_scale and "loss_scale" in facts:
            self.precision.loss_scale = LossScale(*facts["loss_scale"])


def places_in(params):
    """For the path of each parameter, its slice of the flat arrays, and its shape.

    >>> places_in({"weight": np.zeros((2, 3)), "bias": np.zeros(3)})
    {'weight': (slice(0, 6, None), (2, 3)), 'bias': (slice(6, 9, None), (3,))}
    """
    places = {}
    end = 0
    for path, x in tree.leaves(params):
        start, end = end, end + x.size
        places[path] = slice(start, end), x.shape
    return places


class GivenGradients:
    """Takes the gradients that a model gives for a batch: each of them once, in its shape.

    Parameters
    ----------
    places : dict
        The slice of the flat arrays, and the shape, of each parameter, by its path.
    add : callable
        ``add(path, grad)`` is called with each gradient, which nobody changes from then on.
    """

    def __init__(self, places, add):
        self.places, self.add = places, add
        self.missing = dict.fromkeys(places)

    def ready(self, path, grads):
        """Take the gradients below a path."""
        for leaf, grad in tree.leaves(grads, path):
            _, shape = self.places.get(leaf, (None, "nothing"))
            if getattr(grad, "shape", None) != shape:  # otherwise it would be broadcast
                what = tree.described(grad, dtypes=False)
                raise ValueError(f"the gradient of {leaf}: given {what}, expected {shape}")
            if leaf not in self.missing:
                raise ValueError(f"the gradient of {leaf}: given twice, expected once")
            del self.missing[leaf]
            self.add(leaf, grad)

    def finish(self, results):
        """Take the gradients that were not given to ``ready`` from what ``loss_and_grad`` returned.

        They may be all, or None. Return the other results, the loss and the number of targets.
        """
        loss, grads, n_targets = checked_results(results)
        for leaf, grad in tree.leaves({} if grads is None else grads):
            if leaf in self.missing or leaf not in self.places:
                self.ready(leaf, grad)
        for leaf in self.missing:
            _, shape = self.places[leaf]
            raise ValueError(f"the gradient of {leaf}: given nothing, expected shape {shape}")
        return loss, n_targets


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
        """The norm of the gradient."""
        return self.ops.global_norm(flat_grads)

    def update(self, state, **numbers):
        """Update the parameters and moments of a ``TrainState``, by ``Optimizer.update``."""
        for piece in self.pieces:
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

    ``frozen`` are paths of arrays or of dicts of arrays that are never updated; ``decays(array)``
    says whether the weight decay applies to it. A path that matches no parameter, or frozen=all
    parameters, is a ``ValueError``.

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
        if not any(is_in(path, name) for path, _ in leaves):
            such = f"such as {leaves[0][0]!r} or {list(params)}"
            raise ValueError(f"frozen has {name!r}, expected paths of parameters {such}")

    def kind_of(leaf):
        path, x = leaf
        return any(is_in(path, name) for name in frozen), decays(x)

    pieces = []
    stop = 0
    for kind, neighbours in groupby(leaves, key=kind_of):
        start, stop = stop, stop + sum(x.size for _, x in neighbours)
        place = slice(start, stop)
        pieces.append(Piece(place, place, *kind))
    if all(piece.frozen for piece in pieces):
        what = f"frozen={list(frozen)} includes all parameters"
        raise ValueError(f"{what}, expected some that are trained")
    return pieces


def is_in(path, name):
    """Whether a path is ``name`` or begins with it.

    >>> is_in("encoder.0.attention", "encoder.0"), is_in("encoder.01.attention", "encoder.0")
    (True, False)
    """
    return f"{path}.".startswith(f"{name}.")
