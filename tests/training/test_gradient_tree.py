"""Gradients of shards are added up as they come, in one order, and no thread keeps a whole one."""

import random
import threading
import time
import weakref
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal
from programs import in_threads
from refusals import refuses

from npformer import SGD, CopyTask, Trainer, Transformer
from npformer.models.loss_and_grad import GivenGradients
from npformer.reference.math.update import NORM_BLOCK
from npformer.runtime.chunks import chunks_of
from npformer.runtime.ranks import share_of
from npformer.runtime.sums import subtrees, tree_sum
from npformer.training.shards import GradientTree, slots_of
from npformer.tree import count, leaves, view_as

LIKE = {"a": {"weight": np.empty((2, 3)), "bias": np.empty(3)}, "b": np.empty(())}
SLOTS = slots_of(LIKE)
SIZE = count(LIKE)


def gradients(n, seed=0):
    """For each shard, gradients of very different sizes, whose sum depends on its order."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.integers(-6, 7, (n, SIZE))
    flat = (rng.standard_normal((n, SIZE)) * sizes).astype("float32")
    return flat, [view_as(x, LIKE) for x in flat]


def sum_of(flat, start=0, stop=None):
    """The sum of some shards, in the order of the tree."""
    parts = {(i, i + 1): x for i, x in enumerate(flat)}
    return tree_sum(parts, start, stop or len(flat))


def add_all(batch, shard, gradients_of_shard):
    for path, grad in leaves(gradients_of_shard):
        batch.add(shard, path, grad)


def n_waiting(batch, total):
    """The number of gradients that wait for others in memory of their own."""
    return sum(not np.shares_memory(x, total) for x in batch.waiting.values())


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_sum_has_one_order_in_whichever_order_gradients_come(n, is_first):
    flat, shards = gradients(n)
    kept = flat.copy()
    (before,), _ = gradients(1, seed=9)
    expected = sum_of(flat)
    if not is_first:
        expected = before + expected
    parts = [(i, path, grad) for i, shard in enumerate(shards) for path, grad in leaves(shard)]
    for seed in range(5):
        total = before.copy()
        complete = []
        told = SimpleNamespace(complete=complete.append)
        batch = GradientTree(SLOTS, {(0, n): total}, is_first, told)
        random.Random(seed).shuffle(parts)
        for part in parts:
            batch.add(*part)
        assert total.tobytes() == expected.tobytes()
        starts = sorted(place.start for place in complete)
        assert starts == sorted(slot.place.start for slot in SLOTS.values())
        assert not batch.waiting
        assert_array_equal(flat, kept)


def test_subtrees_have_sums_of_their_own_and_a_place_is_complete_once():
    flat, shards = gradients(7)
    roots = subtrees(0, 7, range(1, 6))
    assert roots == [(1, 2), (2, 4), (4, 6)]
    sums = {root: np.empty(SIZE, "float32") for root in roots}
    complete = []
    batch = GradientTree(SLOTS, sums, True, SimpleNamespace(complete=complete.append))
    for shard in (5, 1, 3, 4, 2):
        assert complete == []
        add_all(batch, shard, shards[shard])
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
    flat, shards = gradients(8)
    total = np.empty(SIZE, "float32")
    batch = GradientTree(SLOTS, {(0, 8): total}, True)
    batch.waiting = Slow()
    in_threads(*(partial(add_all, batch, i, shard) for i, shard in enumerate(shards)))
    assert total.tobytes() == sum_of(flat).tobytes()


@pytest.mark.parametrize("n", [4, 8, 16])
def test_threads_keep_less_than_two_gradients_each(n):
    """All go on to the next one together, as threads do that compute as much."""
    flat, shards = gradients(n)
    total = np.empty(SIZE, "float32")
    batch = GradientTree(SLOTS, {(0, n): total}, True)
    most = []
    note = lambda: most.append(n_waiting(batch, total))
    together = threading.Barrier(n, timeout=60, action=note)

    def backward(shard):
        for path, grad in leaves(shards[shard]):
            batch.add(shard, path, grad)
            together.wait()

    in_threads(*(partial(backward, shard) for shard in range(n)))
    assert total.tobytes() == sum_of(flat).tobytes()
    assert len(most) == len(SLOTS)
    assert max(most) < 2 * n


@pytest.mark.parametrize("late", [0, 5, 63])
def test_while_one_of_64_shards_is_late_a_few_sums_wait_for_it(late):
    flat, shards = gradients(64)
    total = np.empty(SIZE, "float32")
    batch = GradientTree(SLOTS, {(0, 64): total}, True)
    for i in [*range(late), *range(late + 1, 64)]:
        add_all(batch, i, shards[i])
    n = len(SLOTS)
    assert 5 * n <= n_waiting(batch, total) <= 6 * n  # log2(64), of which one may be in ``total``
    add_all(batch, late, shards[late])
    assert total.tobytes() == sum_of(flat).tobytes()


def taken(results, *early):
    """The paths of the gradients that are taken of a model which gives some early."""

    paths = []
    given = GivenGradients(dict(leaves(LIKE)), lambda path, grad: paths.append(path))
    for path, grads in early:
        given.ready(path, grads)
    assert given.loss_of(results) == results[0]
    return paths


def test_what_was_given_to_ready_is_not_taken_again():
    _, (tree,) = gradients(1)
    a = "a", tree["a"]
    assert taken((0.5, tree, 3), a) == ["a.weight", "a.bias", "b"]
    message = "the gradient of a.weight: given twice, expected once"
    refuses(ValueError, message, taken, (0.5, tree, 3), a, a)


@pytest.mark.parametrize("early", [True, False])
def test_a_gradient_that_is_missing_or_of_another_shape_is_named(early):
    def named(message, path, grads):
        results = (0.5, None if early else {path: grads}, 3)
        with pytest.raises(ValueError, match=f"the gradient of {message}"):
            taken(results, *[(path, grads)] * early)

    layer = {"weight": np.ones((2, 3)), "bias": np.ones(3)}
    named(r"b: given nothing, .* shape \(\)", "a", layer)
    named(r"a.bias: given shape \(1,\), expected \(3,\)", "a", {"bias": np.zeros(1)})
    named(r"c: given shape \(1,\), expected nothing", "c", np.zeros(1))


def test_results_that_are_not_those_of_a_model_are_refused():
    def refused(message, results):
        refuses(ValueError, message, taken, results)

    refused("returned 2 values, expected .loss, gradients, number of targets", (0.5, {}))
    refused("returned a NoneType, expected .loss", None)
    refused(r"returned a loss of shape \(4,\), expected a number", (np.ones(4), {}, 4))


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
        self.references += [weakref.ref(x) for _, x in leaves(grads)]


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
    a_layer = 4 * count(params["decoder"]["0"])
    assert watched.n > 8
    assert watched.most <= a_layer < 4 * 200 * 8


# --- the same bits for any division among ranks ---

MOST = 40


@settings(deadline=None)  # on a machine with other work an example may take a while
@given(st.integers(1, MOST), st.integers(1, MOST), st.randoms(use_true_random=False))
def test_any_number_of_ranks_gets_the_same_bits(n, size, random):
    sizes = [10 ** random.randint(-4, 4) for _ in range(n)]
    numbers = [np.float32(size * random.uniform(-1, 1)) for size in sizes]
    parts = {(i, i + 1): x for i, x in enumerate(numbers)}
    whole = tree_sum(parts, 0, n)
    found = {}
    for rank in range(size):
        for start, stop in subtrees(0, n, share_of(range(n), rank, size)):
            assert (start, stop) not in found
            found[start, stop] = tree_sum(parts, start, stop)
    assert sum(stop - start for start, stop in found) == n
    assert tree_sum(found, 0, n) == whole
    assert abs(whole - np.sum(numbers, dtype=np.float64)) <= 1e-5 * np.abs(numbers).max()


@pytest.mark.parametrize(("n", "size"), [(8, 1), (8, 4), (12, 3), (24, 6), (5, 5), (48, 12)])
def test_ranks_send_one_sum_each_where_they_divide_the_tree(n, size):
    for rank in range(size):
        share = share_of(range(n), rank, size)
        assert len(subtrees(0, n, share)) == 1


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_sum_is_written_to_out_which_may_be_a_part(n):
    arrays = [np.full(3, 10.0**i) for i in range(n)]
    before = np.copy(arrays)
    parts = {(i, i + 1): x for i, x in enumerate(arrays)}
    out = np.zeros(3)
    assert tree_sum(parts, 0, n, out=out) is out
    assert_array_equal(out, before.sum(axis=0))
    assert_array_equal(arrays, before)
    last = arrays[-1]
    assert tree_sum(parts, 0, n, out=last) is last
    assert_array_equal(last, out)


@pytest.mark.parametrize(("n", "size"), [(1, 3), (100_000, 2), (10**7, 1000)])
def test_chunks_divide_everything_among_the_ranks(n, size):
    owned = []
    for rank in (0, size // 2, size - 1):
        chunks = chunks_of(n, rank, size, NORM_BLOCK)
        n_left = n
        n_owned = 0
        for chunk in chunks:  # the last one first
            assert chunk.place.stop == n_left
            n_left -= sum(chunk.counts)
            assert chunk.place.start == n_left
            assert chunk.own == chunk.pieces[rank]
            assert chunk.joined == slice(n_owned, n_owned + chunk.counts[rank])
            assert not any(x.start % NORM_BLOCK for x in chunk.pieces if x.start < x.stop)
            n_owned = chunk.joined.stop
        assert n_left == 0
        owned.append(n_owned)
    assert max(owned) - min(owned) <= NORM_BLOCK * len(chunks)
