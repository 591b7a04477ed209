"""What is frozen, what decays, and where a training starts from."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from npformer import SGD, Adam, AdamW, Trainer, Transformer, tree
from npformer.training.checkpoint import contents_of, save_checkpoint

SRC = np.array([[3, 4, 5, 6], [7, 3, 0, 0], [8, 5, 0, 0]])
TGT = np.array([[1, 3, 4, 5, 6, 2], [1, 7, 3, 2, 0, 0], [1, 8, 5, 2, 0, 0]])
MODEL = Transformer(
    11, 11, d_model=14, n_heads=2, n_layers=2, d_ff=17, dtype="float64", dropout=0.1
)


def changed(trainer, before):
    """The paths of the parameters that have moved."""
    pairs = zip(tree.leaves(trainer.params), tree.leaves(before), strict=True)
    return {path for (path, x), (_, y) in pairs if (x != y).any()}


@pytest.mark.parametrize(
    "optimizer", [SGD(0.1, momentum=0.9), Adam(0.01), AdamW(0.01)], ids=lambda x: type(x).__name__
)
def test_what_is_frozen_stays_and_all_else_moves(optimizer):
    frozen = ["encoder.0", "decoder.1.attention.qkv", "source_embedding"]
    trainer, before = Trainer(MODEL, optimizer, frozen=frozen), MODEL.init(0)
    for _ in range(2):
        trainer.step(SRC, TGT)
    paths = {path for path, _ in tree.leaves(before)}
    stays = {path for path in paths if any(f"{path}.".startswith(f"{name}.") for name in frozen)}
    assert len(stays) > 10
    assert changed(trainer, before) == paths - stays


def test_what_is_frozen_does_not_count_in_the_norm():
    frozen = "encoder", "source_embedding"
    whole, part = Trainer(MODEL, SGD(0.1)), Trainer(MODEL, SGD(0.1), frozen=frozen)
    for trainer in (whole, part):
        trainer.step(SRC, TGT)
    squares = {path: (x**2).sum() for path, x in tree.leaves(whole.state.grads)}
    counted = [square for path, square in squares.items() if path.split(".")[0] not in frozen]
    assert_allclose(part.last.grad_norm, np.sqrt(sum(counted)), rtol=1e-12)
    assert part.last.grad_norm < whole.last.grad_norm


def test_nothing_frozen_is_one_update():
    assert len(Trainer(MODEL, Adam(0.01)).flat_optimizer.pieces) == 1
    assert len(Trainer(MODEL, AdamW(0.01, decay_all=True)).flat_optimizer.pieces) == 1


@pytest.mark.parametrize(
    ("frozen", "error", "message"),
    [
        ("encoder", TypeError, r"is a str, expected a sequence of paths: try \['encoder'\]"),
        (["encodr"], ValueError, "frozen has 'encodr', expected paths .* 'source_embedding' or"),
        (["encoder.0.atten"], ValueError, "frozen has 'encoder.0.atten'"),
        (list(MODEL.init(0)), ValueError, "includes all parameters, expected some that are"),
    ],
)
def test_paths_that_cannot_be_frozen(frozen, error, message):
    with pytest.raises(error, match=message):
        Trainer(MODEL, Adam(0.01), frozen=frozen)


def test_biases_and_gains_do_not_decay():
    """A learning rate times a decay of 1, and no gradient: what decays is gone."""
    for decay_all in (False, True):
        trainer = Trainer(MODEL, AdamW(1.0, weight_decay=1.0, eps=1e30, decay_all=decay_all))
        before = tree.map_leaves(np.copy, trainer.params)
        trainer.step(SRC, TGT)
        for (path, x), (_, y) in zip(tree.leaves(trainer.params), tree.leaves(before), strict=True):
            expected = np.zeros_like(x) if decay_all or x.ndim > 1 else y
            assert_allclose(x, expected, rtol=0, atol=1e-15, err_msg=path)


def test_adamw_of_older_checkpoints_decayed_everything(tmp_path):
    pytest.importorskip("safetensors")
    old, new = (Trainer(MODEL, AdamW(0.01, decay_all=decay_all)) for decay_all in (True, False))
    arrays, info = contents_of(old)
    settings = info["trainer"]  # of which older files had less
    assert settings["optimizer"].pop("decay_all") and settings.pop("frozen") == []
    save_checkpoint(tmp_path / "old", arrays, info)
    old.load(tmp_path / "old")
    with pytest.raises(ValueError, match="decay_all"):
        new.load(tmp_path / "old")


def test_a_training_starts_from_a_model_with_another_vocabulary():
    trained = Trainer(MODEL, Adam(0.01))
    trained.step(SRC, TGT)
    larger = replace(MODEL, tgt_vocab=13)
    params, taken, left = tree.merged(trained.params, larger.init(1))
    assert left == ["target_embedding", "output.weight", "output.bias"]
    trainer = Trainer(larger, Adam(0.01), params=params, frozen=["encoder"])
    for path, x in tree.leaves(trainer.params):
        start = trained.params if path in taken else larger.init(1)
        assert_array_equal(x, dict(tree.leaves(start))[path])
    trainer.step(SRC, TGT)
    encoders = [tree.flatten(each.params["encoder"])[0] for each in (trainer, trained)]
    assert_array_equal(*encoders)
