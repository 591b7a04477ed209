"""What a training step changes, as flat arrays: the parameters, their gradients, and the optimizer's moments."""

import inspect
from functools import partial
from itertools import accumulate, groupby
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.reference import derive_key
from npformer.training.precision import LossScale, Precision


class TrainState:
    """The parameters, the optimizer's moments, the number of steps, and the loss scale."""

    def __init__(self, params, ops, settings):
        self.flat_params = ops.device.asarray(tree.flatten(params)[0])  # (n,), which is updated in place
        self.params = tree.fixed(tree.view_as(self.flat_params, params))  # views into it
        self.flat_grads = np.zeros_like(self.flat_params)  # (n,), the gradient of the last step
        self.grads = tree.view_as(self.flat_grads, params)  # views into it
        self.places = places_in(params)  # of each parameter in the flat arrays
        self.precision = Precision(settings.precision, ops, self.flat_params, self.params)  # with the loss scale
        self.moments: dict = {}  # arrays of the optimizer, or the part of them that this rank has
        self.n_steps, self.seed, self.asarray = 0, settings.seed, ops.device.asarray  # steps that are done
        self.validations: list[dict] = []  # the results of all so far
        self.n_logged = 0  # records in the log
        self.files: set = set()  # checkpoints that hold this training, which it may write over

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
        loss_scale = {"loss_scale": list(self.precision.loss_scale)} if self.precision.has_loss_scale else {}
        return {name: getattr(self, name) for name in ("n_steps", "validations", "n_logged")} | loss_scale

    def set(self, params, moments, facts):
        """Take all values from host memory; the moments are those that this rank has."""
        self.flat_params[...] = self.asarray(tree.flatten(tree.ordered_like(params, self.params))[0])
        for name, x in self.moments.items():
            x[...] = self.asarray(moments[name])
        self.n_steps, self.n_logged = facts["n_steps"], facts.get("n_logged", 0)  # older files have no log
        self.validations = list(facts.get("validations", []))
        if self.precision.has_loss_scale:
            self.precision.loss_scale = LossScale(*facts.get("loss_scale", self.precision.loss_scale))


def places_in(params):
    """For the path of each parameter, its slice of the flat arrays, and its shape.

    >>> places_in({"weight": np.zeros((2, 3)), "bias": np.zeros(3)})
    {'weight': (slice(0, 6, None), (2, 3)), 'bias': (slice(6, 9, None), (3,))}
    """
    leaves = tree.leaves(params)
    ends = accumulate(x.size for _, x in leaves)
    return {path: (slice(end - x.size, end), x.shape) for (path, x), end in zip(leaves, ends, strict=True)}


def into_flat(loss_and_grad, state):
    """A ``loss_and_grad`` of the batches of a step, which adds up their gradients in ``state.flat_grads``.

    The result is that of one batch with all their rows, whose activations need not be in memory at once. Each batch has
    a dropout key that is derived from that of the step. The gradients that are returned are views, ``state.grads``.
    If ``loss_and_grad`` takes ``ready``, they are written as soon as they are there, so that no whole gradient is kept
    beside this array.
    """
    gives_early = takes_ready(loss_and_grad)

    def of_batches(params, *batches, dropout_key=None, **options):
        loss_of_all = np.float64(0)
        n_of_all = 0
        for i, batch in enumerate(batches):
            gradients = FlatGradients(state.places, state.flat_grads, is_first=i == 0)
            if gives_early:
                options["ready"] = partial(gradients.ready, 0)
            key = derive_key(dropout_key, i)
            loss, grads, n_targets = loss_and_grad(params, *batch, dropout_key=key, **options)
            gradients.add(0, grads)  # what was not given to ``ready``
            gradients.check_complete()
            loss_of_all = loss_of_all + loss  # each loss was divided by the targets of the whole step
            n_of_all += n_targets
        return loss_of_all, state.grads, n_of_all

    return of_batches


def takes_ready(loss_and_grad):
    """Whether a model's function may give gradients as soon as they are there."""
    return "ready" in inspect.signature(loss_and_grad).parameters


class FlatGradients:
    """Where a model gives the gradients of a batch to, each once; the first batch of a step overwrites what is there.

    ``places`` has the slice of the flat array, and the shape, of each parameter, by its path.
    """

    shards = (0,)  # the numbers of those that give gradients here: a batch that is not divided is one

    def __init__(self, places, flat, is_first):
        self.places, self.flat, self.is_first = places, flat, is_first
        self.taken: set = set()  # (path, shard) of each gradient

    def ready(self, shard, path, grads):
        """Take the gradients of a shard below a path; nobody else changes them from here on."""
        for leaf, grad in tree.leaves(grads, path):
            place, shape = self.places.get(leaf, (None, "nothing"))
            if getattr(grad, "shape", None) != shape:  # otherwise it would be broadcast
                what = f"shape {grad.shape}" if hasattr(grad, "shape") else f"a {type(grad).__name__}"
                raise ValueError(f"the gradient of {leaf}: given {what}, expected {shape}")
            if (leaf, shard) in self.taken:
                raise ValueError(f"the gradient of {leaf}: given twice, expected once")
            self.taken.add((leaf, shard))
            self._add(shard, leaf, grad)

    def add(self, shard, grads):
        """Take the gradients of a shard that it has not given to ``ready``; ``grads`` may be None."""
        for leaf, grad in tree.leaves({} if grads is None else grads):
            if (leaf, shard) not in self.taken:
                self.ready(shard, leaf, grad)

    def check_complete(self):
        """Raise if a shard has not given all gradients."""
        for leaf, (_, shape) in self.places.items():
            for shard in self.shards:
                if (leaf, shard) not in self.taken:
                    raise ValueError(f"the gradient of {leaf}: given nothing, expected shape {shape}")

    def _add(self, shard, leaf, grad):
        place, shape = self.places[leaf]
        total = self.flat[place].reshape(shape)
        if self.is_first:
            total[...] = grad
        else:
            total += grad


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
