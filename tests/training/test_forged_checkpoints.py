"""Checkpoints that are forged with a right checksum: each is refused with a line that says why."""

import json
import math
import os
from functools import partial

import numpy as np
import pytest
from programs import FORKS_WARN
from refusals import refuses
from trainings import MODEL, make

from npformer import ByteNet, tree
from npformer.models import describe, from_description
from npformer.training import CheckpointError, load_checkpoint, save_checkpoint
from tests.tools import forge_checkpoints
from tests.tools.forgery import joined, parts, rewrite, seal

pytest.importorskip("safetensors")


@pytest.fixture
def path(tmp_path):
    """A checkpoint with two arrays."""
    path = tmp_path / "last.safetensors"
    save_checkpoint(path, {"a": np.ones((2, 3), "f"), "b": np.ones(4)}, {"step": 1})
    return path


@pytest.fixture
def training(tmp_path):
    """The checkpoint of a training."""
    path = tmp_path / "training.safetensors"
    make().save(path)
    return path


def write(path, header, data):
    """Write a forgery, with a right checksum if it can have one."""
    seal(header, data)
    path.write_bytes(joined(json.dumps(header).encode(), data))


def refused(call):
    """The reason why a file is refused."""
    with pytest.raises(CheckpointError) as caught:
        call()
    text = str(caught.value)
    assert text.isprintable()  # one line
    assert "safetensors" in text  # the name of the file
    assert len(text) < 700
    return text


def test_a_forged_header_is_refused(path):
    whole = path.read_bytes()

    def forged(name, reason, **change):
        path.write_bytes(whole)
        header, data = parts(path)
        header[name] |= change
        for key in change:
            if change[key] is None:
                del header[name][key]
        write(path, header, data)
        assert reason in refused(lambda: load_checkpoint(path))

    metadata = partial(forged, "__metadata__")
    metadata("its metadata lacks ['order']", order=None)
    metadata("its metadata lacks ['info']", info=None)
    metadata("its metadata lacks ['crc32']", crc32=None)
    metadata("npformer did not write it", format="3")
    metadata("it has format version \\x00, this", version="\0")
    metadata("invalid type: integer `3`, expected a string", info=3)
    metadata("its info is a list, expected a dict", info="[1]")
    metadata("its info is not valid JSON", info="{")
    huge = '{"a": ' + "9" * 5000 + "}"
    metadata("its info is not valid JSON: Exceeds the limit", info=huge)
    large = '{"a": ' + "9" * 300 + "}"
    metadata("is an integer of more than 299 digits", info=large)
    deepest = '{"a":' * 50_000 + "1" + "}" * 50_000
    metadata("its info is nested too deeply, expected at", info=deepest)
    deep = '{"a":' * 101 + "1" + "}" * 101
    metadata("is nested too deeply, expected at most 100 levels", info=deep)
    many = "[" + "1," * 500_000 + "1]"
    metadata("values, expected at most 400,000: save more as arrays", info=many)
    long = '"' + "x" * 9_000_000 + '"'
    metadata("its info has 9,000,002 characters, expected at most", info=long)
    metadata("its order is 3, expected the names of its arrays", order="3")
    metadata("its order is ['a', 1], expected", order='["a", 1]')
    metadata("expected the names of its arrays, each once", order='["a", "a"]')
    metadata("expected the names of its arrays", order='["a", "\\ud800"]')
    array = partial(forged, "a")
    array("cannot be read as a checkpoint", dtype="BF16")
    array("cannot be read as a checkpoint", dtype="F8_E4M3")
    array("invalid JSON in header", dtype=["F32"])
    empty = {"shape": [0, 10**12, 10**12], "data_offsets": [0, 0]}
    array("cannot be read as a checkpoint", **empty)
    array("cannot be read as a checkpoint", shape=[1] * 70)
    for shape in ([6.0], [2, -3], [10**30]):
        array("invalid JSON in header", shape=shape)
    array("missing field `shape`", shape=None)
    array("cannot be read as a checkpoint", data_offsets=[0, 24])
    forged("b", "cannot be read as a checkpoint", data_offsets=[8, 40])


def deep():
    values = []
    values.append(values)
    return values


def shared():
    values = [1]
    for _ in range(40):
        values = [values, values]
    return values


def test_what_could_not_be_loaded_is_not_saved(path):
    before = path.read_bytes()

    def unsaved(message, value):
        refuses(ValueError, message, save_checkpoint, path, {}, {"a": value})
        assert path.read_bytes() == before

    unsaved("values, expected at most 400,000: save more as arrays", [0] * 400_001)
    unsaved("info has 9,000,009 characters, expected at most 8,388,608", "x" * 9_000_000)
    unsaved(r"info\['a'\] is an integer of more than 299 digits", 10**300)
    unsaved("info is nested too deeply", deep())
    unsaved("too many values, expected at most 400,000: save more as arrays", shared())


# ---- Trainer.load ----


def test_a_forged_training_is_refused(training):
    trainer = make()
    before = trainer.flat_params.copy()
    whole = training.read_bytes()
    _, info = load_checkpoint(training)

    def forged(reason, **change):
        training.write_bytes(whole)
        rewrite(training, info=change)
        assert reason in refused(lambda: trainer.load(training))
        np.testing.assert_array_equal(trainer.flat_params, before)

    forged("name is None in the file and 'Transformer' in the model", model=None)
    forged("model=[1], expected a dict", model=[1])
    forged("name is [1] in the file and 'Transformer' in the model", model={"name": [1]})
    forged("seed is None in the file and 0 in the trainer", trainer=None)
    forged("trainer=3, expected a dict", trainer=3)
    forged("n_steps=None is a NoneType, expected an int", n_steps=None)
    forged("n_steps=-1, expected at least 0", n_steps=-1)
    forged("n_steps=1.0 is a float, expected an int", n_steps=1.0)
    forged("n_steps=True is a bool, expected an int", n_steps=True)
    forged("expected at most 9223372036854775807", n_steps=10**200)
    forged("loss_scale=3, expected a scale and a number of steps", loss_scale=3)
    forged("expected a scale and a number of steps", loss_scale=[1.0, 2, 3])
    forged("loss_scale[0]=nan", loss_scale=[math.nan, 2])
    forged("loss_scale[1]=-2", loss_scale=[1.0, -2])

    def forged_model(reason, **change):
        forged(reason, model=info["model"] | change)

    forged_model("model has settings that this npformer does not know: ['cache']", cache=1)
    forged_model("dropout is nan in the file and 0.2 in the model", dropout=math.nan)
    forged_model("n_layers is 1000000000000 in the file and 1 in the model", n_layers=10**12)

    def forged_trainer(reason, **change):
        forged(reason, trainer=info["trainer"] | change)

    forged_trainer("settings that this npformer does not know: ['cache']", cache=1)
    forged_trainer("seed is '1' in the file and 0 in the trainer", seed="1")
    forged_trainer("frozen is [1] in the file and [] in the trainer", frozen=[1])
    forged_trainer("optimizer is 'Adam' in the file and {", optimizer="Adam")
    forged_trainer("optimizer is {'name': [1]} in the file and {", optimizer={"name": [1]})


# ---- descriptions and names ----


def test_a_description_of_nothing_is_named():
    unknown = {"name": "Transformer", "x": 1}
    for description in (None, [1], {}, {"name": 3}, unknown, {"name": "exec"}):
        refuses(ValueError, "expected", from_description, description)


def test_a_description_that_the_arrays_contradict_is_refused():
    """Also by columns of a convolution that no memory has."""

    def contradicted(message, model, **change):
        arrays = tree.to_arrays(model.init(0), "params")
        description = describe(model)
        assert from_description(description, arrays) == model
        refuses(ValueError, message, from_description, description | change, arrays)

    message = "max_len=1000000000000 needs 8,000,000,000,000 numbers for the positions"
    contradicted(message, MODEL, max_len=10**12)
    bytenet = ByteNet(9, 10, d_model=8, n_sets=1)
    message = "numbers for the positions"
    contradicted(message, bytenet, dilations=[1, 2, 4, 8, 10**12])
    contradicted(message, bytenet, unfold=[1e300, 0])
    contradicted(message, bytenet, unfold=[1, 10**12])


def test_names_that_contradict_each_other_are_refused():
    for names in (["a", "a.b"], ["a.b", "a"], ["a", "a.b.c"]):
        arrays = {f"params.{name}": np.zeros(1) for name in names}
        message = "leads through a leaf or ends at one"
        refuses(ValueError, message, tree.from_arrays, arrays, "params")


def test_a_name_with_many_dots_gives_a_tree_that_can_be_walked():
    name = "params" + ".a" * 100_000
    [(path, _)] = tree.leaves(tree.from_arrays({name: np.zeros(1)}, "params"))
    assert f"params.{path}" == name


# ---- at random ----


@pytest.mark.skipif(
    not os.path.exists("/proc/self/clear_refs"), reason="the memory is measured on Linux"
)
@FORKS_WARN
def test_no_forgery_gives_anything_but_a_line(monkeypatch, capsys):
    """The short form of tests/tools/forge_checkpoints.py, which forges thousands."""
    pytest.importorskip("sentencepiece")
    names = ("max_len", "model of the settings", "lists up to the limit", "deep")
    monkeypatch.setattr(forge_checkpoints, "BOMBS", names)
    assert forge_checkpoints.main(["--files", "100", "--seed", "3"]) == 0
    assert "\n0 failures in" in capsys.readouterr().out
