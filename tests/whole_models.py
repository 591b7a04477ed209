"""The gradient of whole models.

Their loss as a function of all their parameters as one array, and a batch with padding for it.
"""

import numpy as np

from npformer import tree
from npformer.gradients import COMPLEX_STEP

B, S, T, V_SRC, V_TGT = 4, 11, 5, 7, 9  # no dimension is as long as another


def padded(rng, length, vocab, shortest):
    """Ids of B sequences of different lengths."""
    ids = rng.integers(1, vocab, (B, length))
    for row, n in enumerate(np.linspace(shortest, length, B).astype(int)):
        ids[row, n:] = 0
    return ids


SRC = padded(np.random.default_rng(3), S, V_SRC, shortest=2)
TGT = padded(np.random.default_rng(4), T + 1, V_TGT, shortest=3)


def shaken(params):
    rng = np.random.default_rng(1)
    return tree.map_leaves(lambda x: x + 0.1 * rng.standard_normal(x.shape), params)


def loss_of_batch(model, like, batch, dropout_key, backend="reference", **options):
    """The loss and its gradient as functions of a flat array of parameters."""
    label_smoothing = 0.0 if getattr(model, "task", None) == "numbers" else 0.1
    options |= {"dropout_key": dropout_key, "label_smoothing": label_smoothing, "backend": backend}

    def f(flat):
        loss, _ = model.loss(tree.view_as(flat, like), *batch, **options)
        return loss

    def f_backward(flat):
        _, grads, _ = model.loss_and_grad(tree.view_as(flat, like), *batch, **options)
        assert [path for path, _ in tree.leaves(grads)] == [path for path, _ in tree.leaves(like)]
        gradient, _ = tree.flatten(grads)
        return gradient

    return f, f_backward


def assert_gradient_along_directions(f, f_backward, params):
    """The slope by the complex step along a random direction in which all numbers move.

    A wrong number changes it. Directions in which one array moves then say which is wrong.
    """
    flat, _ = tree.flatten(params)
    gradient = f_backward(flat)
    direction = np.random.default_rng(0).standard_normal(flat.size)
    bound = 1e-13 * np.abs(gradient).max() * flat.size**0.5

    def is_right(step):
        slope = np.imag(f(flat + 1j * COMPLEX_STEP * step)) / COMPLEX_STEP
        return abs(slope - gradient @ step) <= bound

    if not is_right(direction):
        wrong = []
        for path, at in tree.leaves(tree.view_as(np.arange(flat.size), params)):
            step = np.zeros(flat.size)
            step[at] = direction[at]
            if not is_right(step):
                wrong.append(path)
        raise AssertionError(wrong)


def assert_gradient_by_central_differences(f, f_backward, params):
    """The slope of the loss along a random direction in which all numbers move."""
    flat, _ = tree.flatten(params)
    h = 1e-5  # with more a relu would come to its kink
    step = h * np.random.default_rng(2).standard_normal(flat.size) / flat.size**0.5
    near, far = (f(flat + k * step) - f(flat - k * step) for k in (1, 2))
    slope = (8 * near - far) / 12  # of fourth order, for where a norm is steep
    assert abs(slope - f_backward(flat) @ step) <= 1e-8 * h * max(abs(slope / h), 0.1)


def assert_same_gradient(f_backward, f_backward_of_kernels, params):
    """The gradients of each array are equal, except for the order of additions."""
    flat, _ = tree.flatten(params)
    wanted = dict(tree.leaves(tree.view_as(f_backward(flat), params)))
    for path, x in tree.leaves(tree.view_as(f_backward_of_kernels(flat), params)):
        error = np.abs(x - wanted[path]).max()
        largest = np.abs(wanted[path]).max()
        assert error <= 1e-13 * max(1, largest), f"{path} is off by {error}"
