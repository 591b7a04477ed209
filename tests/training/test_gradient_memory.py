"""Gradients are added up during the backward passes, so no thread keeps a whole gradient."""

import threading
import weakref
from functools import partial

import numpy as np
import pytest
from programs import in_threads

from npformer import SGD, Trainer, Transformer, tree
from npformer.runtime.sums import tree_sum
from npformer.training.flat import slots_of
from npformer.training.shards import GradientTree

N_LAYERS, SIZE = 20, 1000
PATHS = [f"layer.{i}" for i in range(N_LAYERS)]
SLOTS = slots_of({"layer": {str(i): np.empty(SIZE) for i in range(N_LAYERS)}})


def gradient(shard, path):
    rng = np.random.default_rng([shard, PATHS.index(path)])
    return rng.standard_normal(SIZE).astype(np.float32)


def expected(n):
    wholes = [np.concatenate([gradient(shard, path) for path in PATHS]) for shard in range(n)]
    return tree_sum({(i, i + 1): x for i, x in enumerate(wholes)}, 0, n)


def kept(batch, flat):
    """The number of layers' gradients that wait for others in memory of their own."""
    return sum(not np.shares_memory(x, flat) for x in batch.waiting.values())


@pytest.mark.parametrize("n", [4, 8, 16, 64])
def test_threads_keep_less_than_two_layers_each(n):
    """All go on to the next layer together, as threads do that compute as much."""
    flat = np.empty(N_LAYERS * SIZE, np.float32)
    most = []
    batch = GradientTree(SLOTS, {(0, n): flat}, is_first=True)
    together = threading.Barrier(n, timeout=60, action=lambda: most.append(kept(batch, flat)))

    def backward(shard):
        for path in PATHS:
            batch.add(shard, path, gradient(shard, path))
            together.wait()

    in_threads(*(partial(backward, shard) for shard in range(n)))
    np.testing.assert_array_equal(flat, expected(n))
    assert len(most) == N_LAYERS
    assert max(most) < 2 * n


@pytest.mark.parametrize("slow", [0, 5, 63])
def test_while_one_of_64_shards_is_late_a_few_sums_wait_for_it(slow):
    flat = np.empty(N_LAYERS * SIZE, np.float32)
    batch = GradientTree(SLOTS, {(0, 64): flat}, is_first=True)

    def add(shard):
        for path in PATHS:
            batch.add(shard, path, gradient(shard, path))

    for shard in range(64):
        if shard != slow:
            add(shard)
    assert 5 * N_LAYERS <= kept(batch, flat) <= 6 * N_LAYERS  # one may be in ``flat``
    add(slow)
    np.testing.assert_array_equal(flat, expected(64))


class Watched:
    """Gradients that a model gives to ``ready``, and the most bytes of them that were kept."""

    def __init__(self):
        self.references = []
        self.most = 0
        self.n = 0

    def ready(self, path, grads):
        kept = [reference() for reference in self.references]
        self.most = max(self.most, sum(x.nbytes for x in kept if x is not None))
        self.n += 1
        self.references += [weakref.ref(x) for _, x in tree.leaves(grads)]


SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 3, "d_ff": 9}


@pytest.mark.parametrize("n_batches", [1, 3])
def test_a_step_of_one_shard_keeps_no_gradient_that_a_model_has_given(n_batches):
    """Nor from one batch to the next."""
    model = Transformer(200, 200, **SIZES)
    watched = Watched()

    def loss_and_grad(*batch, ready, **options):
        def take(path, grads):
            watched.ready(path, grads)
            ready(path, grads)

        return Transformer.loss_and_grad(model, *batch, ready=take, **options)

    object.__setattr__(model, "loss_and_grad", loss_and_grad)
    trainer = Trainer(model, SGD(0.1), n_shards=1)
    batch = np.full((4, 5), 3), np.full((4, 6), 3)
    trainer.step(batches=[batch] * n_batches)
    assert watched.n >= 8 * n_batches
    assert watched.most < 0.5 * trainer.flat_params.nbytes


@pytest.mark.parametrize("tie_embeddings", [False, True])
def test_a_model_does_not_keep_the_gradients_that_it_has_given(tie_embeddings):
    model = Transformer(200, 200, **SIZES, tie_embeddings=tie_embeddings)
    params = model.init(0)
    watched = Watched()
    model.loss_and_grad(params, np.full((2, 5), 3), np.full((2, 6), 3), ready=watched.ready)
    a_layer = 4 * tree.count(params["decoder"]["0"])
    assert watched.n > 8
    assert watched.most <= a_layer < 4 * 200 * 8
