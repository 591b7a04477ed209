"""The gradient of whole models.

Their loss as a function of a list of arrays, and a batch with padding for it.
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
    """The loss and its gradient as functions of the list of parameter arrays."""
    label_smoothing = 0.0 if getattr(model, "task", None) == "numbers" else 0.1
    arguments = {
        "dropout_key": dropout_key,
        "label_smoothing": label_smoothing,
        "backend": backend,
        **options,
    }

    def rebuild(arrays):
        values = iter(arrays)
        return tree.map_leaves(lambda _: next(values), like)

    def f(*arrays):
        return model.loss(rebuild(arrays), *batch, **arguments)[0]

    def f_backward(dloss, *arrays):
        _, grads, _ = model.loss_and_grad(rebuild(arrays), *batch, **arguments)
        assert [path for path, _ in tree.leaves(grads)] == [path for path, _ in tree.leaves(like)]
        return [dloss * grad for _, grad in tree.leaves(grads)]

    return f, f_backward


def assert_gradient_along_directions(f, f_backward, params):
    """The slope by the complex step along a random direction in which all numbers move.

    A wrong number changes it. Directions in which one array moves then say which is wrong.
    """
    names, arrays = zip(*tree.leaves(params), strict=True)
    gradients, rng = f_backward(1.0, *arrays), np.random.default_rng(0)
    directions = [rng.standard_normal(x.shape) for x in arrays]
    bound = 1e-13 * max(np.abs(x).max() for x in gradients)

    def is_right(moving):
        moved, expected = list(arrays), 0.0
        for i in moving:
            moved[i] = arrays[i] + 1j * COMPLEX_STEP * directions[i]
            expected += (gradients[i] * directions[i]).sum()
        slope = np.imag(f(*moved)) / COMPLEX_STEP
        return abs(slope - expected) <= bound * sum(x.size for x in arrays) ** 0.5

    everything = range(len(arrays))
    if not is_right(everything):
        raise AssertionError([names[i] for i in everything if not is_right([i])])


def assert_gradient_by_central_differences(f, f_backward, params):
    """The slope of the loss along a random direction in which all numbers move."""
    flat, like = tree.flatten(params)
    gradient = f_backward(1.0, *(x for _, x in tree.leaves(params)))
    gradient = np.concatenate([x.ravel() for x in gradient])

    def loss_at(point):
        return f(*(x for _, x in tree.leaves(tree.view_as(point, like))))

    h = 1e-5  # with more a relu would come to its kink
    step = h * np.random.default_rng(2).standard_normal(flat.size) / flat.size**0.5
    near, far = (loss_at(flat + k * step) - loss_at(flat - k * step) for k in (1, 2))
    slope = (8 * near - far) / 12  # of fourth order, for where a norm is steep
    assert abs(slope - gradient @ step) <= 1e-8 * h * max(abs(slope / h), 0.1)


def assert_same_gradient(f_backward, f_backward_of_kernels, params):
    """The gradients are equal, except for the order of additions."""
    names, arrays = zip(*tree.leaves(params), strict=True)
    both = f_backward(1.0, *arrays), f_backward_of_kernels(1.0, *arrays)
    for name, wanted, gradient in zip(names, *both, strict=True):
        np.testing.assert_allclose(
            gradient, wanted, rtol=0, atol=1e-13 * max(1, np.abs(wanted).max()), err_msg=name
        )
