"""What a step changes, as flat arrays: the state, the sum of the gradients, and the update."""

import threading
from itertools import groupby
from typing import NamedTuple

import numpy as np

from npformer import tree
from npformer.reference import derive_key
from npformer.runtime.memory import empty
from npformer.runtime.sums import relatives
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


class GradientTree:
    """Adds up the gradients of the shards of a batch, in the order of ``tree_sum``.

    Each shard gives its gradients in any thread, each of them once. Two arrays are added as soon as
    both are there, so that no shard keeps a whole gradient while the others compute theirs.

    Parameters
    ----------
    places : dict
        The slice of the flat arrays, and the shape, of each parameter, by its path.
    sums : dict
        For each subtree, the shards from start to stop: (start, stop) -> the flat array (n,) of
        their sum.
    is_first : bool
        Whether the sum overwrites what is in its array, instead of being added to it.
    sending : Sending, optional
        Sends sums to other ranks as soon as they are complete.
    """

    def __init__(self, places, sums, is_first, sending=None):
        self.places, self.is_first, self.sending = places, is_first, sending
        self.sum_of = {}
        for root, flat in sums.items():
            self.sum_of |= dict.fromkeys(range(*root), (root, flat))
        self.taken: set = set()  # (path, shard) of each gradient
        self.n_missing = dict.fromkeys(places, len(sums))  # sums that are not complete
        self.waiting: dict = {}  # by path and subtree: sums whose siblings are not complete
        self.lock = threading.Lock()

    def ready(self, shard, path, grads):
        """Take the gradients of a shard below a path; nobody else changes them from here on."""
        for leaf, grad in tree.leaves(grads, path):
            _, shape = self.places.get(leaf, (None, "nothing"))
            if getattr(grad, "shape", None) != shape:  # otherwise it would be broadcast
                what = tree.described(grad, dtypes=False)
                raise ValueError(f"the gradient of {leaf}: given {what}, expected {shape}")
            if (leaf, shard) in self.taken:
                raise ValueError(f"the gradient of {leaf}: given twice, expected once")
            self.taken.add((leaf, shard))
            self._add(shard, leaf, grad)

    def add(self, shard, grads):
        """Take the gradients that a shard has not given to ``ready``; ``grads`` may be None."""
        for leaf, grad in tree.leaves({} if grads is None else grads):
            if (leaf, shard) not in self.taken:
                self.ready(shard, leaf, grad)

    def check_complete(self):
        """Raise if a shard has not given all gradients."""
        for leaf, n_missing in self.n_missing.items():
            if n_missing > 0:
                _, shape = self.places[leaf]
                raise ValueError(f"the gradient of {leaf}: given nothing, expected shape {shape}")

    def _add(self, shard, path, grad):
        """Add a gradient to that of its sibling, their sum to its own, and so on to the root."""
        place, shape = self.places[path]
        root, flat = self.sum_of[shard]
        total = flat[place].reshape(shape)
        node = shard, shard + 1
        while node != root:
            sibling, parent = relatives(*root)[node]
            with self.lock:
                other = self.waiting.pop((path, sibling), None)
                if other is None:
                    self.waiting[path, node] = grad
                    return
            if self.is_first and parent[0] == root[0]:
                out = total  # which has no other use before it is complete
            elif node[1] - node[0] > 1:
                out = grad  # a sum of this tree
            else:  # not ``grad``, which a model may have given as another gradient, too
                out = empty(shape, np.result_type(grad, other))
            grad = np.add(grad, other, out=out)
            node = parent
        if not self.is_first:
            total += grad
        elif grad is not total:
            total[...] = grad
        with self.lock:
            self.n_missing[path] -= 1
            is_complete = self.n_missing[path] == 0
        if is_complete and self.sending is not None:
            self.sending.complete(place)


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
