"""The sums of the gradients of a batch, which are added up as they come."""

import random
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from programs import in_threads
from refusals import refuses

from npformer import SGD, CopyTask, Trainer, Transformer
from npformer.runtime.sums import subtrees, tree_sum
from npformer.training.flat import GradientIntake, slots_of
from npformer.training.shards import GradientTree
from npformer.tree import leaves, view_as

SLOTS = slots_of({"a": {"weight": np.empty((2, 3)), "bias": np.empty(3)}, "b": np.empty(())})
SIZE = 10


def gradients(n, seed=0):
    """For each shard, gradients of very different sizes, whose sum depends on its order."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.integers(-6, 7, (n, SIZE))
    flat = (rng.standard_normal((n, SIZE)) * sizes).astype("float32")
    like = {"a": {"weight": np.empty((2, 3)), "bias": np.empty(3)}, "b": np.empty(())}
    return flat, [view_as(x, like) for x in flat]


def add_all(batch, shard, gradients_of_shard):
    for path, grad in leaves(gradients_of_shard):
        batch.add(shard, path, grad)


def noting(complete):
    """What a tree tells of the places that are complete."""
    return SimpleNamespace(complete=complete.append)


def sum_of(flat, start=0, stop=None):
    """The sum of some shards, in the order of the tree."""
    parts = {(i, i + 1): x for i, x in enumerate(flat)}
    return tree_sum(parts, start, stop or len(flat))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_sum_has_one_order_in_whichever_order_gradients_come(n, is_first):
    flat, trees = gradients(n)
    (before,), _ = gradients(1, seed=9)
    expected = sum_of(flat)
    if not is_first:
        expected = before + expected
    parts = [(i, path, part) for i, tree in enumerate(trees) for path, part in leaves(tree)]
    for seed in range(20):
        total = before.copy()
        complete = []
        batch = GradientTree(SLOTS, {(0, n): total}, is_first, noting(complete))
        random.Random(seed).shuffle(parts)
        for part in parts:
            batch.add(*part)
        assert total.tobytes() == expected.tobytes()
        assert sorted(place.start for place in complete) == [0, 6, 9]
        assert not batch.waiting


def test_subtrees_have_sums_of_their_own_and_a_place_is_complete_once():
    flat, trees = gradients(7)
    roots = subtrees(0, 7, range(1, 6))
    assert roots == [(1, 2), (2, 4), (4, 6)]
    sums = {root: np.empty(SIZE, "float32") for root in roots}
    complete = []
    batch = GradientTree(SLOTS, sums, True, noting(complete))
    for shard in (5, 1, 3, 4, 2):
        assert complete == []
        add_all(batch, shard, trees[shard])
    assert len(complete) == len(SLOTS)
    for root, total in sums.items():
        assert total.tobytes() == sum_of(flat, *root).tobytes()


class Slow(dict):
    """A dict after whose ``pop`` other threads come first."""

    def pop(self, *arguments):
        found = super().pop(*arguments)
        time.sleep(1e-3)
        return found


def test_threads_that_give_at_once_get_the_same_bits():
    """Without a lock, two siblings would wait for each other."""
    flat, trees = gradients(8)
    for _ in range(3):
        total = np.empty(SIZE, "float32")
        batch = GradientTree(SLOTS, {(0, 8): total}, True)
        batch.waiting = Slow()
        in_threads(*(partial(add_all, batch, shard, trees[shard]) for shard in range(8)))
        assert total.tobytes() == sum_of(flat).tobytes()


def test_no_gradient_of_a_shard_is_kept_or_changed():
    flat, trees = gradients(4)
    before = flat.copy()
    batch = GradientTree(SLOTS, {(0, 4): np.empty(SIZE, "float32")}, True)
    for shard, tree in enumerate(trees):
        add_all(batch, shard, tree)
        assert len(batch.waiting) <= 2 * len(SLOTS)  # log2(4)
    np.testing.assert_array_equal(flat, before)


def test_what_was_given_to_ready_is_not_taken_again():
    _, (tree,) = gradients(1)
    taken = []
    intake = GradientIntake(SLOTS, lambda path, grad: taken.append(path))
    intake.ready("a", tree["a"])
    intake.finish((0.5, tree, 3))
    assert taken == ["a.weight", "a.bias", "b"]


@pytest.mark.parametrize("early", [True, False])
def test_a_gradient_that_is_missing_or_of_another_shape_is_named(early):
    def named(message, path, grads):
        intake = GradientIntake(SLOTS, lambda path, grad: None)
        with pytest.raises(ValueError, match=f"the gradient of {message}"):
            if early:
                intake.ready(path, grads)
            intake.finish((0.5, None if early else {path: grads}, 3))

    layer = {"weight": np.ones((2, 3)), "bias": np.ones(3)}
    named(r"b: given nothing, .* shape \(\)", "a", layer)
    named(r"a.bias: given shape \(1,\), expected \(3,\)", "a", {"bias": np.zeros(1)})
    named(r"c: given shape \(1,\), expected nothing", "c", np.zeros(1))


def test_a_gradient_that_is_given_twice_is_named():
    intake = GradientIntake(SLOTS, lambda path, grad: None)
    intake.ready("b", np.zeros(()))
    message = "the gradient of b: given twice, expected once"
    refuses(ValueError, message, intake.ready, "b", np.zeros(()))


@pytest.mark.parametrize(
    "results, message",
    [
        ((0.5, {}), "returned 2 values, expected .loss, gradients, number of targets"),
        (None, "returned a NoneType, expected .loss"),
        ((np.ones(4), {}, 4), r"returned a loss of shape \(4,\), expected a number"),
    ],
)
def test_results_that_are_not_those_of_a_model_are_refused(results, message):
    intake = GradientIntake(SLOTS, lambda path, grad: None)
    with pytest.raises(ValueError, match=message):
        intake.finish(results)


class WithoutOutput(Transformer):
    """A model whose gradients lack those of the output."""

    def loss_and_grad(self, *given, ready=None, **options):
        loss, grads, n = super().loss_and_grad(*given, **options)
        del grads["output"]
        return loss, grads, n


@pytest.mark.parametrize("n_shards", [1, 2])
def test_a_step_without_all_gradients_names_the_first_that_is_missing(n_shards):
    model = WithoutOutput(9, 9, d_model=8, n_heads=1, n_layers=1, d_ff=8)
    trainer = Trainer(model, SGD(0.1), n_shards=n_shards)
    before = trainer.flat_params.copy()
    message = r"output\.weight: given nothing, expected shape \(8, 9\)"
    refuses(ValueError, message, trainer.step, *CopyTask(vocab=9, max_len=4).batch(0, 4))
    assert np.array_equal(trainer.flat_params, before)
