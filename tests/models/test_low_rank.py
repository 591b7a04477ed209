"""Low-rank adapters: gradients, what is trained and saved, and merging."""

import copy
import pickle

import numpy as np
import pytest
from catalogue import ADAPTED, OF_ADAPTED as SIZES, adapted
from oracles import assert_close
from promises import params_of
from refusals import refuses, refusing
from tables import each_of
from whole_models import shaken

from npformer import Adam, LanguageModel, Trainer, tree
from npformer.models import LowRank
from npformer.training import CheckpointError

each_case = each_of(("model", "batch", "settings"), ADAPTED)


@each_case
def test_it_computes_as_the_model_with_merged_weights(model, batch, settings):
    ours = adapted(model, settings)
    new = ours.init(0)
    base = params_of(model)
    # adapters change nothing at first
    tree.map_leaves(np.testing.assert_array_equal, ours.merged(new), base)
    params = shaken(new)
    merged = ours.merged(params)
    assert ours.loss(params, *batch) == model.loss(merged, *batch)
    own = dict(tree.leaves(params))
    changed = dict(tree.leaves(merged))
    for path, W in tree.leaves(base):
        expected = own.get(path, W)
        if f"{path}.A" in own:
            A = own[f"{path}.A"]
            assert A.shape == (len(W), 2)
            expected = W + 1.5 * A @ own[f"{path}.B"]
        assert_close(changed[path], expected, 1e-14)


def test_what_becomes_of_the_base_or_of_merged_weights_changes_nothing():
    model, batch, settings = ADAPTED["LanguageModel"]
    base = Trainer(model, Adam(0.1), params=params_of(model))
    ours = LowRank(model, base.params, **settings)
    params = shaken(ours.init(0))
    loss = ours.loss(params, *batch)
    for changed in (base.params, ours.merged(params)):
        tree.map_leaves(lambda x: x.fill(7.0), changed)
        assert ours.loss(params, *batch) == loss
    assert ours.base == adapted(model, settings).base


def test_what_has_adapters_and_what_is_trained_whole():
    model, _, settings = ADAPTED["LanguageModel"]
    paths = {path for path, _ in tree.leaves(adapted(model, settings).init(0))}
    whole = {f"layers.0.attention_norm.{name}" for name in ("gain", "bias")} | {"output.weight"}
    weights = {f"layers.0.{name}.weight" for name in ("attention.qkv", "feed_forward.hidden")}
    assert paths == whole | {f"{path}.{x}" for path in weights for x in "AB"}

    transformer = ADAPTED["Transformer"][0]
    everywhere = tree.leaves(adapted(transformer, {}).init(0))
    shapes = tree.leaves(transformer.shapes())
    weights = {path for path, x in shapes if x.ndim == 2 and ".0." in path}
    assert {path.rpartition(".")[0] for path, _ in everywhere} == weights
    assert len(weights) == 4 + 7


@pytest.mark.parametrize("n_shards", [1, 2])
def test_a_training_lowers_the_loss_and_resumes_bit_for_bit(tmp_path, n_shards):
    model, batch, settings = ADAPTED["Transformer"]
    base = params_of(model)

    def trainer():
        return Trainer(LowRank(model, base, rank=2), Adam(0.02), n_shards=n_shards, seed=1)

    half, again = trainer(), trainer()
    first, *_ = [half.step(*batch) for _ in range(8)]
    path = tmp_path / "adapters.safetensors"
    half.save(path)
    arrays, _ = again.load(path)
    assert {name.rpartition(".")[2] for name in arrays if name.startswith("params.")} == {"A", "B"}
    trainers = half, again, copy.deepcopy(half), pickle.loads(pickle.dumps(half))
    losses = [[each.step(*batch) for _ in range(4)] for each in trainers]
    assert losses == [losses[0]] * 4
    assert losses[0][-1] < 0.95 * first
    tree.map_leaves(np.testing.assert_array_equal, base, params_of(model))
    other = Trainer(LowRank(model, shaken(base), rank=2), Adam(0.02), seed=1)
    refuses(CheckpointError, "base is", other.load, path)


def test_a_model_in_half_precision_has_adapters_in_that_of_the_model():
    model, batch, settings = ADAPTED["Encoder"]
    half = tree.map_leaves(lambda x: x.astype(np.float16), params_of(model))
    in_full = tree.map_leaves(lambda x: x.astype(model.dtype), half)
    ours, wanted = (LowRank(model, params, **settings) for params in (half, in_full))
    params = shaken(ours.init(0))
    assert {x.dtype for _, x in tree.leaves(params)} == {np.dtype(model.dtype)}
    assert ours.loss(params, *batch) == wanted.loss(params, *batch)


def test_validation_computes_with_the_merged_weights():
    model, batch, settings = ADAPTED["Encoder"]
    trainer = Trainer(adapted(model, settings), Adam(0.02))
    trainer.fit([batch] * 2, validate=[batch], every=1, progress=False)
    merged = trainer.model.merged(trainer.params)
    loss, _ = model.loss(merged, *batch)
    assert trainer.state.validations[-1]["val_loss"] == pytest.approx(float(loss))


def test_what_is_refused():
    model = ADAPTED["Encoder"][0]

    refused = refusing(LowRank, model, model.init(0))
    refused("targets has 'qvk', expected parts of paths such as layers.0", targets=("qvk",))
    refused("targets has 'attention_norm'", targets=("attention_norm",))
    parts = "expected parts of paths such as output.weight, output.bias"
    refused(f"whole has 'head', {parts}", whole=("head",))
    refused("there is nothing to train, expected targets or whole", targets=())
    refused("rank=0, expected at least 1", rank=0)
    refused("alpha=-1.0, expected a finite number above 0", alpha=-1.0)


def test_one_path_in_place_of_several_and_what_is_no_model_are_refused():
    model = ADAPTED["Encoder"][0]
    for name in ("targets", "whole"):
        message = rf"{name}='qkv' is a str, expected a sequence of paths: try \['qkv'\]"
        refuses(TypeError, message, LowRank, model, model.init(0), **{name: "qkv"})
    message = "targets=3 is a int, expected a sequence of paths"
    refuses(TypeError, message, LowRank, model, model.init(0), targets=3)
    message = r"model is a NoneType without shapes\(\), expected one of npformer's"
    refuses(TypeError, message, LowRank, None, model.init(0))
    refuses(TypeError, "params is a NoneType, expected a nested dict", LowRank, model, None)


def test_the_parameters_of_another_model_are_refused():
    message = r"parameter embedding: given shape \(9, 8\), expected shape \(5, 8\)"
    params = LanguageModel(9, **SIZES).init(0)
    refuses(ValueError, message, LowRank, LanguageModel(5, **SIZES), params)
