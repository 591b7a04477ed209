"""What a ``Trainer`` refuses, and what it takes in any order or type."""

import operator
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refuses, refusing
from trainings import MODEL, each_copy, make, reversed_order

from npformer import SGD, Adam, AdamW, Trainer, Transformer, tree
from npformer.training.checkpoint import contents_of
from npformer.training.settings import (
    LoopKeywords,
    LoopSettings,
    TrainingKeywords,
    TrainingSettings,
)

SRC = np.array([[3, 4, 5]])
TGT = np.array([[1, 3, 4, 2]])


@pytest.fixture
def trainer():
    return make()


@pytest.fixture
def unchanged(trainer):
    """The trainer is at the end what it was."""
    before = trainer.flat_params.copy()
    yield
    assert_array_equal(trainer.flat_params, before)
    assert trainer.n_steps == 0


def saved_and_loaded(folder, trainer, again):
    """Load what a trainer saves."""
    pytest.importorskip("safetensors")
    path = folder / "x.safetensors"
    trainer.save(path)
    again.load(path)
    return again


def test_parameters_in_another_order_are_the_same_parameters(trainer, tmp_path):
    other = make(params=reversed_order(MODEL.init(0)))
    trainer.step(SRC, TGT)
    other.step(SRC, TGT)
    again = saved_and_loaded(tmp_path, other, make())
    for each in (other, again):
        assert_array_equal(each.state.arrays, trainer.state.arrays)


@pytest.mark.parametrize(
    ("keywords", "record"),
    [(TrainingKeywords, TrainingSettings), (LoopKeywords, LoopSettings)],
)
def test_the_keywords_that_type_checkers_know_are_the_settings(keywords, record):
    assert keywords.__annotations__ == {field.name: field.type for field in fields(record)}


def test_no_batches_are_refused_and_nothing_moves(trainer, unchanged):
    def refused(message, *batch, batches):
        refuses(ValueError, message, trainer.step, *batch, batches=batches)

    for none in ([], iter([]), zip()):
        refused("batches is empty, expected one or more tuples", batches=none)
    refused("step got a batch and batches=…, expected one of them", SRC, TGT, batches=[(SRC, TGT)])


def test_batches_that_can_be_read_once_make_a_whole_step(trainer):
    pairs = [(SRC, TGT), (TGT, TGT)]
    loss = trainer.step(batches=pairs)
    for once in (
        iter(pairs),
        (pair for pair in pairs),
        zip(*zip(*pairs, strict=True), strict=True),
    ):
        other = make()
        assert other.step(batches=once) == loss
        assert_array_equal(other.flat_params, trainer.flat_params)
        assert other.last.n_tokens == 6


def test_what_can_be_read_once_is_no_part_of_a_batch(trainer, unchanged):
    def refused(call, *arguments, **options):
        message = r"batch\[1\] is a list_iterator, which can be read only once"
        refuses(TypeError, message, call, *arguments, **options)

    batch = SRC, iter([[3, 4, 5]])
    refused(trainer.step, *batch)
    refused(trainer.step, batches=[(SRC, TGT), batch])
    refused(trainer.fit, [batch], progress=False)
    refused(trainer.explain, *batch)


def test_callbacks_may_be_a_generator():
    seen: list = []
    callbacks = (lambda trainer, info, i=i: seen.append((info.step, i)) for i in range(2))
    make().fit([(SRC, TGT)] * 2, callbacks=callbacks, progress=False)
    assert seen == [(1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize("watch", [False, True])
def test_callbacks_that_cannot_be_called_are_refused_before_the_first_step(
    trainer, unchanged, watch
):
    def refused(message, callbacks):
        options = {"callbacks": callbacks, "watch": watch, "progress": False}
        refuses(TypeError, message, trainer.fit, [(SRC, TGT)] * 2, **options)

    refused(r"callbacks is a builtin_.*, expected a list of functions: try \[callbacks\]", print)
    refused("callbacks is a int, expected a list of functions$", 3)
    refused(r"callbacks\[1\]=3 is a int, expected a function", [print, 3])


TREE = MODEL.init(1)


def test_parameters_cannot_be_replaced(trainer):
    params = trainer.params
    output = params["output"]

    def refused(name, change, *arguments, **options):
        message = f"^{name} cannot be replaced.*: write into "
        refuses(ValueError, message, change, *arguments, **options)

    bias = TREE["output"]["bias"]
    refused("parameter 'bias'", output.update, bias=bias)
    refused("parameter 'bias'", operator.setitem, output, "bias", bias)
    refused("parameter 'name'", params.update, {"output": TREE["output"]})
    refused("parameter 'name'", operator.ior, params, {"output": TREE["output"]})
    refused("trainer.params", setattr, trainer, "params", TREE)
    refused("trainer.params", setattr, trainer, "params", None)
    refused("parameter 'more'", output.setdefault, "more", bias)
    refused("parameter 'bias'", output.pop, "bias")
    refused("parameter 'encoder'", operator.delitem, params, "encoder")
    refused("parameter 'name'", params.popitem)
    refused("parameter 'name'", params["encoder"].clear)
    refused("trainer.flat_params", setattr, trainer, "flat_params", trainer.flat_params * 2)
    refused("trainer.ops", setattr, trainer, "ops", None)
    assert trainer.step(SRC, TGT) == make().step(SRC, TGT)  # nothing had changed


@each_copy
def test_a_copy_of_the_parameters_is_an_ordinary_tree(trainer, copied):
    params = copied(trainer.params)
    assert type(params) is dict
    assert type(params["output"]) is dict
    assert MODEL.loss(params, SRC, TGT) == MODEL.loss(trainer.params, SRC, TGT)
    params["output"]["bias"] = np.zeros(10)
    refuses(ValueError, "parameter output.bias", MODEL.loss, params, SRC, TGT)


def test_parameters_are_changed_in_place():
    trainer, other = (make() for _ in range(2))
    trainer.params["output"]["bias"][...] = 1
    other.params["output"]["bias"] += 1
    other.flat_params *= 1
    assert (trainer.flat_params == 1).sum() >= 11
    assert trainer.step(SRC, TGT) == other.step(SRC, TGT)


def test_frozen_may_be_a_generator():
    trainer = make(frozen=iter(["encoder"]))
    assert trainer.settings.frozen == ["encoder"]


def test_numbers_of_numpy_are_saved_as_those_of_python(tmp_path):
    def made(integer, number):
        sizes = {"src_vocab": integer(11), "n_layers": (1, 1), "dropout": number(0.5)}
        settings = {"model": replace(MODEL, **sizes), "seed": integer(1), "clip_norm": number(1)}
        return make(AdamW(weight_decay=number(0.5)), **settings)

    saved_and_loaded(tmp_path, made(np.int64, np.float32), made(int, float))


def test_a_fraction_is_saved_as_the_float_that_it_is_computed_as(tmp_path):
    optimizer = Adam(Fraction(1, 8), [np.float32(0.5), Fraction(3, 4)])
    trainer = make(optimizer, clip_norm=Fraction(1, 3))
    trainer.step(SRC, TGT)
    again = make(Adam(0.125, (0.5, 0.75)), clip_norm=1 / 3)
    assert saved_and_loaded(tmp_path, trainer, again).optimizer == trainer.optimizer


def test_arguments_that_do_not_fit_are_refused():
    refused = refusing(make, error=TypeError)
    below = "expected at least 0 and below"
    refused(f"seed=an int of 1329 bits, {below}", ValueError, seed=10**400)
    refused(f"seed=18446744073709551616, {below}", ValueError, seed=2**64)
    refused("clip_norm=True is a bool, expected a number", clip_norm=True)
    refused("frozen=5 is a int, expected a sequence of paths such as", frozen=5)
    refused("frozen=None is a NoneType, expected a sequence of paths", frozen=None)
    refused("frozen has 5, expected paths of parameters such as", ValueError, frozen=[5])
    refused(r"ranks is a str, expected npformer\.runtime\.ranks\.world\(\)", ranks="x")
    refused("params is a tuple, expected a nested dict", params=(1, 2))
    refused("params is a str, expected a nested dict", params="path")
    missing = "parameter .*: given nothing, expected float32 of shape"
    refused(missing, ValueError, params=dict(tree.leaves(TREE)))


def test_the_largest_seed_trains_and_is_saved(tmp_path):
    trainer, again = (make(seed=2**64 - 1) for _ in range(2))
    trainer.step(SRC, TGT)
    saved_and_loaded(tmp_path, trainer, again)


def test_a_checkpoint_that_lacks_an_array_changes_nothing(trainer, unchanged):
    other = make()
    other.step(SRC, TGT)
    arrays, info = contents_of(other)
    del arrays["optimizer.v"]
    message = "parameter v: given nothing, expected float32 of shape"
    refuses(ValueError, message, trainer.restore, arrays, info, "x")


def test_a_model_needs_its_methods():
    class Model:
        def init(self, seed):
            return {"w": np.zeros(1)}

    refuses(TypeError, r"the model Model has no loss_and_grad\(\)", Trainer, Model(), SGD(0.1))
    message = r"model is the class Transformer, expected Transformer\(…\)"
    refuses(TypeError, message, Trainer, Transformer, SGD(0.1))


def test_what_decides_the_shards_is_the_largest_array(monkeypatch):
    """Of (tokens, labels) the labels are few; and what is no array is handed on as it is."""
    monkeypatch.setattr("npformer.operations.host.n_threads", lambda: 2)
    seen = []

    class Classifier:
        def init(self, seed):
            return {"w": np.zeros(10**5, "float32")}

        def count(self, tokens, labels, note=None):
            return len(labels)

        def loss_and_grad(self, params, tokens, labels, note=None, **options):
            seen.append(len(tokens))
            return 0.0, {"w": np.zeros(10**5, "float32")}, len(labels)

    trainer = Trainer(Classifier(), SGD(0.1))
    batch = np.zeros((4, 500), int), np.zeros(4, int)
    trainer.step(*batch)
    trainer.step(*batch, "as it is")
    assert seen == [2, 2, 4]


@each_copy
def test_a_model_that_was_used_can_be_copied(copied):
    params = MODEL.init(0)
    logits = MODEL.logits(params, SRC, TGT)
    twin = copied(MODEL)
    assert twin == MODEL
    assert_array_equal(twin.logits(params, SRC, TGT), logits)


def test_a_refused_token_leaves_the_decoder_as_it_was(every_backend):
    params = MODEL.init(0)
    decoder = MODEL.decoder(params, SRC, max_rows=1, max_len=9, backend=every_backend)
    row = np.array([0])
    decoder.step(np.array([1]), row)
    message = r"tokens\[0\] is 99, expected 0 <= id < 11"
    refuses(ValueError, message, decoder.step, np.array([99]), row)
    logits = decoder.step(np.array([3]), row)
    expected = MODEL.logits(params, SRC, np.array([[1, 3]]))[:, -1]
    assert_allclose(logits, expected, atol=1e-5)


def test_merging_takes_dicts():
    message = "tree is a Trainer, expected a nested dict"
    refuses(TypeError, message, tree.merged, make(), TREE)
