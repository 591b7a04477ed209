"""The loss of a whole model and its gradient as functions of a list of arrays, and a batch with padding for them."""

import numpy as np

from npformer import tree

B, S, T, V_SRC, V_TGT = 5, 11, 7, 17, 19  # every dimension a prime of its own


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


def loss_of_leaves(model, like, key, backend="reference", src=SRC, tgt=TGT, **options):
    """The loss and its gradient as functions of the list of parameter arrays."""
    batch = src % model.src_vocab, tgt[:, :-1], tgt[:, 1:]
    arguments = {"key": key, "label_smoothing": 0.1, "backend": backend, **options}

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
