"""What is frozen, what decays, and where a training starts from."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from promises import assert_trees_close
from refusals import refuses
from trainings import SRC, TGT

from npformer import SGD, Adam, AdamW, Trainer, Transformer, tree
from npformer.training.checkpoint import contents_of, save_checkpoint

MODEL = Transformer(11, 11, 14, n_heads=2, n_layers=2, d_ff=17, dtype="float64", dropout=0.1)


@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.9), Adam(0.01), AdamW(0.01)], ids=repr)
def test_what_is_frozen_stays_and_all_else_moves(optimizer):
    trainer = Trainer(
        MODEL, optimizer, frozen=["encoder.0", "decoder.1.attention.qkv", "source_embedding"]
    )
    for _ in range(2):
        trainer.step(SRC, TGT)
    before = dict(tree.leaves(MODEL.init(0)))
    n_stayed = 0
    for path, x in tree.leaves(trainer.params):
        stays = path.startswith(("encoder.0.", "decoder.1.attention.qkv.", "source_embedding"))
        assert (x == before[path]).all() == stays, path
        n_stayed += stays
    assert n_stayed > 10


def test_what_is_frozen_does_not_count_in_the_norm():
    frozen = "encoder", "source_embedding"
    whole = Trainer(MODEL, SGD(0.1))
    part = Trainer(MODEL, SGD(0.1), frozen=frozen)
    for trainer in (whole, part):
        trainer.step(SRC, TGT)
    counted = [x for path, x in tree.leaves(whole.state.grads) if not path.startswith(frozen)]
    norm = np.sqrt(sum((x**2).sum() for x in counted))
    assert_allclose(part.last.grad_norm, norm, rtol=1e-12)
    assert part.last.grad_norm < whole.last.grad_norm


def test_nothing_frozen_is_one_update():
    for optimizer in (Adam(0.01), AdamW(0.01, decay_all=True)):
        assert len(Trainer(MODEL, optimizer).flat_optimizer.pieces) == 1


def test_paths_that_cannot_be_frozen():
    def refused(message, frozen, error=ValueError):
        refuses(error, message, Trainer, MODEL, Adam(0.01), frozen=frozen)

    sequence = r"is a str, expected a sequence of paths: try \['encoder'\]"
    refused(sequence, "encoder", TypeError)
    refused("frozen has 'encodr', expected paths .* 'source_embedding' or", ["encodr"])
    refused("frozen has 'encoder.0.atten'", ["encoder.0.atten"])
    refused("includes all parameters, expected some that are", list(MODEL.init(0)))


def test_biases_and_gains_do_not_decay():
    """A learning rate times a decay of 1, and no gradient: what decays is gone."""
    for decay_all in (False, True):
        optimizer = AdamW(1.0, weight_decay=1.0, eps=1e30, decay_all=decay_all)
        trainer = Trainer(MODEL, optimizer)
        trainer.step(SRC, TGT)
        before = dict(tree.leaves(MODEL.init(0)))
        for path, x in tree.leaves(trainer.params):
            expected = 0 if decay_all or x.ndim > 1 else before[path]
            assert_allclose(x, expected, rtol=0, atol=1e-15, err_msg=path)


def test_adamw_of_older_checkpoints_decayed_everything(tmp_path):
    pytest.importorskip("safetensors")
    old = Trainer(MODEL, AdamW(0.01, decay_all=True))
    new = Trainer(MODEL, AdamW(0.01))
    arrays, info = contents_of(old)
    settings = info["trainer"]  # of which older files had less
    del settings["optimizer"]["decay_all"]
    del settings["frozen"]
    save_checkpoint(tmp_path / "old", arrays, info)
    old.load(tmp_path / "old")
    refuses(ValueError, "decay_all", new.load, tmp_path / "old")


def test_a_training_starts_from_a_model_with_another_vocabulary():
    trained = Trainer(MODEL, Adam(0.01))
    trained.step(SRC, TGT)
    larger = replace(MODEL, tgt_vocab=13)
    params, taken, left = tree.merged(trained.params, larger.init(1))
    assert left == ["target_embedding", "output.weight", "output.bias"]
    trainer = Trainer(larger, Adam(0.01), params=params, frozen=["encoder"])
    start = dict(tree.leaves(larger.init(1)))
    start |= {path: x for path, x in tree.leaves(trained.params) if path in taken}
    for path, x in tree.leaves(trainer.params):
        assert_array_equal(x, start[path])
    trainer.step(SRC, TGT)
    assert_trees_close(trainer.params["encoder"], trained.params["encoder"])
