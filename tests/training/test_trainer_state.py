"""``Trainer.save`` and ``load``: a training that was interrupted is the one that was not."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refuses, refusing
from trainings import MODEL, SRC, TGT, make

from npformer import SGD, Adam, AdamW, CopyTask, Recurrent, tree
from npformer.training import (
    average,
    inverse_sqrt,
    noam,
    save_checkpoint,
)
from npformer.training.checkpoint import contents_of

pytest.importorskip("safetensors")

OPTIMIZERS = [Adam(inverse_sqrt(0.01, 3)), AdamW(0.01), SGD(0.1, momentum=0.9), SGD(0.1)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
@pytest.mark.parametrize("consistency, n_shards", [(0.0, None), (0.7, 2)])
def test_saved_and_loaded_half_way_the_training_is_the_same_bit_for_bit(
    tmp_path, optimizer, consistency, n_shards
):
    """Both that which goes on from the file and that which has saved it."""
    options = {"optimizer": optimizer, "seed": 5, "label_smoothing": 0.1, "clip_norm": 0.5}
    options |= {"consistency": consistency, "n_shards": n_shards}
    whole, first, second = (make(**options) for _ in range(3))
    losses = [whole.step(SRC, TGT) for _ in range(10)]
    for _ in range(4):
        first.step(SRC, TGT)
    first.save(tmp_path / "x")
    second.load(tmp_path / "x")
    for trainer in (first, second):
        assert trainer.n_steps == 4
        assert [trainer.step(SRC, TGT) for _ in range(6)] == losses[4:]
        assert trainer.state.moments.keys() == whole.state.moments.keys()
        for x, expected in zip(trainer.state.arrays, whole.state.arrays, strict=True):
            assert x.tobytes() == expected.tobytes()
        assert trainer.last[:5] == whole.last[:5]  # all but the seconds
    assert make(**options | {"seed": 6}).step(SRC, TGT) != losses[0]


def test_loaded_parameters_are_still_views_of_one_buffer(tmp_path):
    make(params=MODEL.init(9)).save(tmp_path / "x")
    trainer = make()
    trainer.load(tmp_path / "x")
    for params in (trainer.params, MODEL.init(9)):
        flat, _ = tree.flatten(params)
        assert_array_equal(trainer.flat_params, flat)


def test_what_else_was_saved_comes_back(tmp_path):
    trainer = make()
    trainer.step(SRC, TGT)
    vocabulary = np.arange(5, dtype=np.uint8)
    info = {"place": [1, 2, 3], "note": "é"}
    trainer.save(tmp_path / "x", info, {"vocabulary": vocabulary})
    arrays, loaded = make().load(tmp_path / "x")
    assert loaded == loaded | info | {"n_steps": 1}
    assert_array_equal(arrays["vocabulary"], np.arange(5))
    assert arrays["params.output.bias"].shape == (11,)


def test_what_else_is_saved_has_names_of_its_own(tmp_path):
    refused = refusing(make().save, tmp_path / "x", error=TypeError)
    info = {"n_steps": 7, "note": 1}
    refused(r"info has the names \['n_steps'\], expected others", ValueError, info=info)
    message = "arrays has 'params.output.bias', expected names that do not begin with 'params.'"
    refused(message, ValueError, arrays={"params.output.bias": np.zeros(11)})
    refused("arrays has the key 1, expected strings", arrays={1: np.ones(2)})
    refused("info is a str, expected a dict", info="note")
    refused("info is a list, expected a dict", info=["note"])
    refused("arrays is a str, expected a dict", arrays="note")
    refused("arrays is a list, expected a dict", arrays=[np.ones(2)])
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_from_before_a_setting_is_read_with_its_default(tmp_path):
    arrays, info = contents_of(make())
    del info["trainer"]["consistency"]
    save_checkpoint(tmp_path / "x", arrays, info | {"n_steps": 7})
    trainer = make()
    trainer.load(tmp_path / "x")
    assert trainer.n_steps == 7
    message = r"consistency is 0\.0 in the file and 0\.7"
    refuses(ValueError, message, make(consistency=0.7).load, tmp_path / "x")


def test_a_trainer_with_other_arguments_is_refused_and_unchanged(tmp_path):
    saved = make()
    saved.step(SRC, TGT)
    saved.save(tmp_path / "x")

    def refused(message, **options):
        trainer = make(**options)
        before = trainer.flat_params.copy()
        refuses(ValueError, message, trainer.load, tmp_path / "x")
        assert_array_equal(trainer.flat_params, before)
        assert trainer.n_steps == 0

    def refused_model(message, **settings):
        refused(message, model=replace(MODEL, **settings))

    refused("seed is 0 in the file and 1 in the trainer", seed=1)
    refused(r"label_smoothing is 0\.0 in the file and 0\.1 in the trainer", label_smoothing=0.1)
    refused(r"consistency is 0\.0 in the file and 0\.7 in the trainer", consistency=0.7)
    refused(r"clip_norm is None in the file and 1\.0 in the trainer", clip_norm=1.0)
    refused("optimizer is {'name': 'Adam'.* and {'name': 'AdamW'", optimizer=AdamW(0.01))
    other = Adam(0.01, betas=(0.9, 0.98))
    betas = r"optimizer is {'betas': \[0\.9, 0\.999\]} in the file and {'betas': \[0\.9, 0\.98\]}"
    refused(betas, optimizer=other)
    refused("optimizer is {'name': 'Adam'.* and {'name': 'SGD'", optimizer=SGD(0.01))
    refused_model("d_ff is 12 in the file and 16 in the model", d_ff=16)
    refused_model(r"dropout is 0\.2 in the file and 0\.1 in the model", dropout=0.1)
    refused_model(r"n_layers is 1 in the file and \[1, 2\] in the model", n_layers=(1, 2))
    refused_model("dtype is 'float32' in the file and 'float64' in the model", dtype="float64")


def test_a_bug_is_not_told_as_a_damaged_file(tmp_path, monkeypatch):
    trainer = make()
    trainer.save(tmp_path / "x")
    monkeypatch.setattr("npformer.training.trainer.checked_contents", lambda *_: int("a bug"))
    with pytest.raises(ValueError, match="^invalid literal"):
        trainer.load(tmp_path / "x")


def test_the_learning_rate_may_be_another(tmp_path):
    make(Adam(0.01)).save(tmp_path / "x")
    make(Adam(noam(8))).load(tmp_path / "x")


def test_the_loss_scale_of_another_precision_changes_nothing(tmp_path):
    """A training in float16 can go on in float32."""
    trainer, again = make(), make()
    trainer.step(SRC, TGT)
    trainer.save(tmp_path / "x", {"loss_scale": [1024.0, 3]})
    again.load(tmp_path / "x")
    for _ in range(2):
        assert again.step(SRC, TGT) == trainer.step(SRC, TGT)
    assert again.flat_params.tobytes() == trainer.flat_params.tobytes()


# ---- the mean of several trainings, or of moments of one ----


def test_the_average_of_trees_is_taken_leaf_by_leaf_in_their_dtype_and_changes_none():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(5, 2, 3)).astype("f")
    biases = rng.normal(size=(5, 4))
    trees = [{"a": {"b": weight}, "c": bias} for weight, bias in zip(weights, biases, strict=True)]
    before = str(trees)
    mean = average(trees)
    assert mean["a"]["b"].dtype == "f"
    assert_allclose(mean["a"]["b"], weights.mean(axis=0, dtype="d"), rtol=1e-6)
    assert_allclose(mean["c"], biases.mean(axis=0), rtol=1e-15)
    assert str(trees) == before


def test_many_small_numbers_do_not_get_lost_in_the_average():
    """Summed in float32, 2^24 + 1 is 2^24."""
    trees = [{"a": np.full(1, 2.0**24, "f")}] + [{"a": np.ones(1, "f")}] * 1023
    assert average(trees)["a"][0] == np.float32((2**24 + 1023) / 1024)


def test_what_has_no_average_is_refused():
    refuses(ValueError, "trees is empty, expected one or more", average, [])
    message = r"a dict, expected a list of trees .*: try \[params\]"
    refuses(TypeError, message, average, {"a": np.ones(3)})
    refuses(TypeError, "trees is a NoneType, expected a list of trees", average, None)


def test_inverse_sqrt_is_noam_given_by_its_peak():
    peak, warmup, d_model = 0.005, 20, 64
    by_peak = inverse_sqrt(peak, warmup)
    by_factor = noam(d_model, warmup, factor=peak * (d_model * warmup) ** 0.5)
    assert by_peak(warmup) == peak
    for step in range(1, 200):
        assert by_peak(step) == pytest.approx(by_factor(step), rel=1e-14)


WITH_EMPTY_PARTS = [
    Recurrent(11, 11, 16, attention="dot"),
    replace(MODEL, norm="post", n_layers=0),
    replace(MODEL, norm="post", n_layers=(0, 1)),
]


@pytest.mark.parametrize("model", WITH_EMPTY_PARTS, ids=str)
def test_a_part_of_a_model_without_parameters_is_saved_and_loaded(model, tmp_path):
    trainer, again = (make(model=model) for _ in range(2))
    batch = CopyTask().batch(0, 3)
    trainer.step(*batch)
    trainer.save(tmp_path / "x")
    arrays, _ = again.load(tmp_path / "x")
    params = tree.from_arrays(arrays, "params")
    assert model.loss(params, *batch) == model.loss(trainer.params, *batch)
    assert again.step(*batch) == trainer.step(*batch)
    assert make(model=model, params=params).step(*batch) > 0


def test_frozen_may_be_in_any_order(tmp_path):
    make(frozen=["encoder", "decoder"]).save(tmp_path / "x")
    make(frozen={"decoder", "encoder"}).load(tmp_path / "x")
