"""What the tests of several models share: batches, parameters, and comparisons of trees."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from npformer import tree

SRC = np.array([[3, 4, 5, 6, 7], [3, 9, 8, 0, 0]])
TGT = np.array([[1, 5, 6, 8, 9, 2], [1, 4, 2, 0, 0, 0]])
THREE_ROWS = np.array([[3, 4, 5, 6], [7, 8, 0, 0], [9, 0, 0, 0]])


def params_of(model, seed=0):
    """Parameters without any zero, so that a parameter that is not used is noticed."""
    params, rng = model.init(seed), np.random.default_rng(seed)
    for _, x in tree.leaves(params):
        x += 0.3 * rng.standard_normal(x.shape)
    return params


def assert_trees_close(given, expected, atol=0.0):
    """Trees with the same names have the same numbers, up to rounding."""
    leaves = dict(tree.leaves(given))
    wanted = dict(tree.leaves(expected))
    assert list(leaves) == list(wanted)
    for path, x in leaves.items():  # assert_allclose would take ten times as long
        assert np.shape(x) == np.shape(wanted[path]), path
        error = np.abs(x - wanted[path]).max(initial=0)
        assert error <= atol, f"{path} is off by {error}"


def surprise_at(targets, logits):
    """Minus the logarithm of the probability of each target."""
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]


def assert_weights_are_of_what_is_seen(weights, sees):
    """Of each layer: positive there and 0 elsewhere, with the sum 1 where anything is seen."""
    for x in weights:
        seen = np.broadcast_to(sees, x.shape).astype(bool)
        assert_array_equal(x > 0, seen)
        assert_allclose(x.sum(axis=-1), seen.any(axis=-1), atol=1e-14)


def drawn_steps(begun, n_steps, words, max_rows=6):
    """Of each step of decoding its tokens, the rows that they extend, and of each row the number
    of its source and its text.

    Rows extend randomly drawn rows of the step before: some change places, some are duplicated,
    some dropped. A step begins from any source any number of times.
    """
    rng = np.random.default_rng(0)
    sources = np.arange(len(begun))
    texts = [text[:-1] for text in begun]
    parents = np.append(sources[::-1], [0, 0])
    tokens = np.array([begun[parent][-1] for parent in parents])
    for _ in range(n_steps):
        sources = sources[parents]
        texts = [[*texts[i], int(token)] for i, token in zip(parents, tokens, strict=True)]
        yield tokens, parents, sources, texts
        parents = rng.integers(0, len(tokens), size=rng.integers(1, max_rows + 1))
        tokens = rng.choice(words, size=len(parents))
