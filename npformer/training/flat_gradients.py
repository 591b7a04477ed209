"""The gradients of a model as one array, like the parameters."""

import inspect
from itertools import accumulate

from npformer import tree


def into_flat(loss_and_grad, state):
    """A ``loss_and_grad`` that writes its gradients into ``state.flat_grads``; it returns their views ``state.grads``.

    If ``loss_and_grad`` takes ``ready``, they are written as soon as they are there, so that no whole gradient is kept
    beside this array. With ``adds_up`` they are added to what it holds.
    """
    gives_early = takes_ready(loss_and_grad)

    def flat(params, *batch, adds_up=False, **options):
        gradients = FlatGradients(state, adds_up)
        if gives_early:
            options["ready"] = gradients.take
        loss, grads, n_targets = loss_and_grad(params, *batch, **options)
        gradients.take_rest(grads)
        return loss, state.grads, n_targets

    return flat


def takes_ready(loss_and_grad):
    """Whether a model's function may give gradients as soon as they are there."""
    return "ready" in inspect.signature(loss_and_grad).parameters


class FlatGradients:
    """Where a model gives its gradients to, in one thread."""

    def __init__(self, state, adds_up):
        self.places, self.flat, self.adds_up = state.places, state.flat_grads, adds_up
        self.taken: set = set()  # paths

    def take(self, path, grads):
        """Take the gradients below a path."""
        for leaf, grad in tree.leaves(grads, path):
            place, shape = place_of(leaf, grad, self.places)
            if leaf in self.taken:
                raise given_twice(leaf)
            self.taken.add(leaf)
            total = self.flat[place].reshape(shape)
            if self.adds_up:
                total += grad
            else:
                total[...] = grad

    def take_rest(self, grads):
        """Take those that were not given to ``take``, which may be None; then none may be missing."""
        for leaf, grad in tree.leaves({} if grads is None else grads):
            if leaf not in self.taken:
                self.take(leaf, grad)
        for leaf in self.places:
            if leaf not in self.taken:
                raise missing(leaf, self.places)


def places_in(params):
    """For the path of each parameter, its slice of the flat arrays, and its shape.

    >>> places_in({"weight": np.zeros((2, 3)), "bias": np.zeros(3)})
    {'weight': (slice(0, 6, None), (2, 3)), 'bias': (slice(6, 9, None), (3,))}
    """
    leaves = tree.leaves(params)
    ends = accumulate(x.size for _, x in leaves)
    return {path: (slice(end - x.size, end), x.shape) for (path, x), end in zip(leaves, ends, strict=True)}


def place_of(path, grad, places):
    """The slice and the shape of the parameter whose gradient this is; an error if it has another shape."""
    place, shape = places.get(path, (None, "nothing"))
    if getattr(grad, "shape", None) != shape:  # otherwise it would be broadcast
        given = f"shape {grad.shape}" if hasattr(grad, "shape") else f"a {type(grad).__name__}"
        raise ValueError(f"the gradient of {path}: given {given}, expected {shape}")
    return place, shape


def missing(path, places):
    """The error of a gradient that a model has not given."""
    return ValueError(f"the gradient of {path}: given nothing, expected shape {places[path][1]}")


def given_twice(path):
    """The error of a gradient that a model has given to ``ready`` twice."""
    return ValueError(f"the gradient of {path}: given twice, expected once")
