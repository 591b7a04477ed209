"""``Trainer.save`` and ``load``: a training that was interrupted is the one that was not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from npformer import SGD, Adam, AdamW, CopyTask, Recurrent, Trainer, Transformer, tree
from npformer.training import (
    CheckpointError,
    average,
    inverse_sqrt,
    noam,
    save_checkpoint,
)
from npformer.training.checkpoint import contents_of

pytest.importorskip("safetensors")

SRC = np.array([[3, 4, 5, 6], [7, 3, 0, 0], [8, 0, 0, 0], [5, 5, 6, 0]])
TGT = np.array([[1, 3, 4, 5, 6, 2], [1, 7, 3, 2, 0, 0], [1, 8, 2, 0, 0, 0], [1, 5, 5, 6, 2, 0]])


def make(optimizer=None, model=None, **options):
    sizes = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 12, "dropout": 0.2}
    return Trainer(Transformer(11, 11, **sizes | (model or {})), optimizer or Adam(0.01), **options)


@pytest.mark.parametrize(
    "optimizer",
    [Adam(inverse_sqrt(0.01, 3)), AdamW(0.01), SGD(0.1, momentum=0.9), SGD(0.1)],
    ids=["Adam, schedule", "AdamW", "SGD, momentum", "SGD"],
)
@pytest.mark.parametrize("consistency, n_shards", [(0.0, None), (0.7, 2)])
def test_saved_and_loaded_half_way_the_training_is_the_same_bit_for_bit(
    tmp_path, optimizer, consistency, n_shards
):
    """Both that which goes on from the file and that which has saved it."""
    options = {"optimizer": optimizer, "seed": 5, "label_smoothing": 0.1, "clip_norm": 0.5}
    options |= {"consistency": consistency, "n_shards": n_shards}
    whole, first, second = make(**options), make(**options), make(**options)
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


def test_loaded_parameters_are_still_views_of_one_buffer(tmp_path):
    model = make().model
    make(params=model.init(9)).save(tmp_path / "x")
    trainer = make()
    trainer.load(tmp_path / "x")
    for params in (trainer.params, model.init(9)):
        assert_array_equal(trainer.flat_params, tree.flatten(params)[0])


def test_what_else_was_saved_comes_back(tmp_path):
    trainer = make()
    trainer.step(SRC, TGT)
    trainer.save(
        tmp_path / "x",
        {"place": [1, 2, 3], "note": "é"},
        {"vocabulary": np.arange(5, dtype=np.uint8)},
    )
    arrays, info = make().load(tmp_path / "x")
    assert (info["place"], info["note"], info["n_steps"]) == ([1, 2, 3], "é", 1)
    assert_array_equal(arrays["vocabulary"], np.arange(5))
    assert arrays["params.output.bias"].shape == (11,)


@pytest.mark.parametrize(
    "more, message",
    [
        ({"info": {"n_steps": 7, "note": 1}}, r"info has the names \['n_steps'\], expected others"),
        (
            {"arrays": {"params.output.bias": np.zeros(11)}},
            "arrays has 'params.output.bias', expected names that do not begin with 'params.'",
        ),
        ({"arrays": {1: np.ones(2)}}, "arrays has the key 1, expected strings"),
        ({"info": "note"}, "info is a str, expected a dict"),
        ({"info": ["note"]}, "info is a list, expected a dict"),
        ({"arrays": "note"}, "arrays is a str, expected a dict"),
        ({"arrays": [np.ones(2)]}, "arrays is a list, expected a dict"),
    ],
)
def test_what_else_is_saved_has_names_of_its_own(tmp_path, more, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make().save(tmp_path / "x", **more)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_from_before_a_setting_is_read_with_its_default(tmp_path):
    arrays, info = contents_of(make())
    del info["trainer"]["consistency"]
    save_checkpoint(tmp_path / "x", arrays, info | {"n_steps": 7})
    trainer = make()
    trainer.load(tmp_path / "x")
    assert trainer.n_steps == 7
    with pytest.raises(ValueError, match=r"consistency is 0\.0 in the file and 0\.7"):
        make(consistency=0.7).load(tmp_path / "x")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"seed": 1}, "seed is 0 in the file and 1 in the trainer"),
        ({"label_smoothing": 0.1}, r"label_smoothing is 0\.0 in the file and 0\.1 in the trainer"),
        ({"consistency": 0.7}, r"consistency is 0\.0 in the file and 0\.7 in the trainer"),
        ({"clip_norm": 1.0}, r"clip_norm is None in the file and 1\.0 in the trainer"),
        ({"optimizer": AdamW(0.01)}, "optimizer is {'name': 'Adam', .* and {'name': 'AdamW'"),
        ({"optimizer": Adam(0.01, betas=(0.9, 0.98))}, r"optimizer is .*0\.999.* and .*0\.98"),
        ({"optimizer": SGD(0.01)}, "optimizer is {'name': 'Adam', .* and {'name': 'SGD'"),
        ({"model": {"d_ff": 16}}, "d_ff is 12 in the file and 16 in the model"),
        ({"model": {"dropout": 0.1}}, r"dropout is 0\.2 in the file and 0\.1 in the model"),
        ({"model": {"n_layers": (1, 2)}}, r"n_layers is 1 in the file and \[1, 2\] in the model"),
        (
            {"model": {"dtype": "float64"}},
            "dtype is 'float32' in the file and 'float64' in the model",
        ),
    ],
)
def test_a_trainer_with_other_arguments_is_refused_and_unchanged(tmp_path, options, message):
    saved = make()
    saved.step(SRC, TGT)
    saved.save(tmp_path / "x")
    trainer = make(**options)
    before = trainer.flat_params.copy()
    with pytest.raises(ValueError, match=message):
        trainer.load(tmp_path / "x")
    assert_array_equal(trainer.flat_params, before)
    assert trainer.n_steps == 0


def test_the_learning_rate_may_be_another(tmp_path):
    make(Adam(0.01)).save(tmp_path / "x")
    make(Adam(noam(8))).load(tmp_path / "x")


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    save_checkpoint(tmp_path / "x", {"a": np.zeros(2)}, {"a": 1})
    with pytest.raises(ValueError, match="x: name is None in the file and 'Transformer' in"):
        make().load(tmp_path / "x")


def test_the_loss_scale_of_another_precision_changes_nothing(tmp_path):
    """A training in float16 can go on in float32."""
    trainer, again = make(), make()
    trainer.step(SRC, TGT)
    trainer.save(tmp_path / "x", {"loss_scale": [1024.0, 3]})
    again.load(tmp_path / "x")
    assert [again.step(SRC, TGT) for _ in range(2)] == [trainer.step(SRC, TGT) for _ in range(2)]
    assert again.flat_params.tobytes() == trainer.flat_params.tobytes()


def test_a_damaged_checkpoint_is_refused(tmp_path):
    make().save(tmp_path / "x")
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="x cannot be read as a checkpoint"):
        make().load(tmp_path / "x")


# ---- the mean of several trainings, or of moments of one ----


def test_the_average_of_trees_is_taken_leaf_by_leaf_in_their_dtype_and_changes_none():
    def trees():
        rng = np.random.default_rng(0)
        for _ in range(5):
            yield {"a": {"b": rng.normal(size=(2, 3)).astype("f")}, "c": rng.normal(size=4)}

    mean = average(given := list(trees()))
    for path, x in tree.leaves(mean):
        values = [dict(tree.leaves(each))[path] for each in given]
        expected = np.mean(values, axis=0, dtype="d")
        assert x.dtype == values[0].dtype
        assert_allclose(x, expected, rtol=1e-6 if x.dtype == "f" else 1e-15)
    assert str(given) == str(list(trees()))


def test_many_small_numbers_do_not_get_lost_in_the_average():
    """Summed in float32, 2^24 + 1 is 2^24."""
    trees = [{"a": np.full(1, 2.0**24, "f")}] + [{"a": np.ones(1, "f")}] * 1023
    assert average(trees)["a"][0] == np.float32((2**24 + 1023) / 1024)


@pytest.mark.parametrize(
    "trees, error, message",
    [
        ([], ValueError, "trees is empty, expected one or more"),
        ({"a": np.ones(3)}, TypeError, r"a dict, expected a list of trees .*: try \[params\]"),
        (None, TypeError, "trees is a NoneType, expected a list of trees"),
        (["x"], TypeError, "the tree has a str at its root, expected an array"),
    ],
)
def test_what_has_no_average_is_refused(trees, error, message):
    with pytest.raises(error, match=message):
        average(trees)


def test_inverse_sqrt_is_noam_given_by_its_peak():
    peak, warmup, d_model = 0.005, 20, 64
    by_peak = inverse_sqrt(peak, warmup)
    by_factor = noam(d_model, warmup, factor=peak * (d_model * warmup) ** 0.5)
    assert by_peak(warmup) == peak
    for step in range(1, 200):
        assert by_peak(step) == pytest.approx(by_factor(step), rel=1e-14)


NO_ENCODER = {"d_model": 16, "n_heads": 2, "d_ff": 32, "norm": "post"}


@pytest.mark.parametrize(
    "model",
    [
        Recurrent(11, 11, 16, attention="dot"),
        Transformer(11, 11, n_layers=0, **NO_ENCODER),
        Transformer(11, 11, n_layers=(0, 1), **NO_ENCODER),
    ],
    ids=str,
)
def test_a_part_of_a_model_without_parameters_is_saved_and_loaded(model, tmp_path):
    trainer, again = (Trainer(model, Adam(0.01)) for _ in range(2))
    batch = CopyTask().batch(0, 3)
    trainer.step(*batch)
    trainer.save(tmp_path / "x")
    arrays, _ = again.load(tmp_path / "x")
    params = tree.from_arrays(arrays, "params")
    assert model.loss(params, *batch) == model.loss(trainer.params, *batch)
    assert again.step(*batch) == trainer.step(*batch)
    assert Trainer(model, Adam(0.01), params=params).step(*batch) > 0


def test_frozen_may_be_in_any_order(tmp_path):
    pytest.importorskip("safetensors")
    model = Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    Trainer(model, Adam(), frozen=["encoder", "decoder"]).save(tmp_path / "x")
    Trainer(model, Adam(), frozen={"decoder", "encoder"}).load(tmp_path / "x")
