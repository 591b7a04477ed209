"""Checkpoints that are forged with a right checksum: each is refused with a line that says why."""

import json
import os

import numpy as np
import pytest
from programs import FORKS_WARN, WITH_PIPES

from npformer import Adam, ByteNet, Trainer, Transformer, tree
from npformer.models import describe, from_description
from npformer.training import CheckpointError, load_checkpoint, save_checkpoint
from tests.tools import forge_checkpoints
from tests.tools.forgery import joined, parts, rewrite, seal

pytest.importorskip("safetensors")

MODEL = Transformer(11, 11, d_model=8, n_heads=2, n_layers=1, d_ff=12)


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
    Trainer(MODEL, Adam(0.01)).save(path)
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


@pytest.mark.parametrize(
    "which, change, reason",
    [
        ("metadata", {"order": None}, "its metadata lacks ['order']"),
        ("metadata", {"info": None}, "its metadata lacks ['info']"),
        ("metadata", {"crc32": None}, "its metadata lacks ['crc32']"),
        ("metadata", {"format": "3"}, "npformer did not write it"),
        ("metadata", {"version": "\0"}, "it has format version \\x00, this"),
        ("metadata", {"info": 3}, "invalid type: integer `3`, expected a string"),
        ("metadata", {"info": "[1]"}, "its info is a list, expected a dict"),
        ("metadata", {"info": "{"}, "its info is not valid JSON"),
        (
            "metadata",
            {"info": '{"a": ' + "9" * 5000 + "}"},
            "its info is not valid JSON: Exceeds the limit",
        ),
        ("metadata", {"info": '{"a": ' + "9" * 300 + "}"}, "is an integer of more than 299 digits"),
        (
            "metadata",
            {"info": '{"a":' * 50_000 + "1" + "}" * 50_000},
            "its info is nested too deeply, expected at",
        ),
        (
            "metadata",
            {"info": '{"a":' * 101 + "1" + "}" * 101},
            "is nested too deeply, expected at most 100 levels",
        ),
        (
            "metadata",
            {"info": "[" + "1," * 500_000 + "1]"},
            "values, expected at most 400,000: save more as arrays",
        ),
        (
            "metadata",
            {"info": '"' + "x" * 9_000_000 + '"'},
            "its info has 9,000,002 characters, expected at most",
        ),
        ("metadata", {"order": "3"}, "its order is 3, expected the names of its arrays"),
        ("metadata", {"order": '["a", 1]'}, "its order is ['a', 1], expected"),
        ("metadata", {"order": '["a", "a"]'}, "expected the names of its arrays, each once"),
        ("metadata", {"order": '["a", "\\ud800"]'}, "expected the names of its arrays"),
        ("a", {"dtype": "BF16"}, "cannot be read as a checkpoint"),
        ("a", {"dtype": "F8_E4M3"}, "cannot be read as a checkpoint"),
        ("a", {"dtype": ["F32"]}, "invalid JSON in header"),
        (
            "a",
            {"shape": [0, 10**12, 10**12], "data_offsets": [0, 0]},
            "cannot be read as a checkpoint",
        ),
        ("a", {"shape": [1] * 70}, "cannot be read as a checkpoint"),
        ("a", {"shape": [6.0]}, "invalid JSON in header"),
        ("a", {"shape": [2, -3]}, "invalid JSON in header"),
        ("a", {"shape": [10**30]}, "invalid JSON in header"),
        ("b", {"data_offsets": [8, 40]}, "cannot be read as a checkpoint"),
        ("a", {"data_offsets": [0, 24]}, "cannot be read as a checkpoint"),
        ("a", {"shape": None}, "missing field `shape`"),
    ],
)
def test_a_forged_header_is_refused(path, which, change, reason):
    header, data = parts(path)
    entry = header["__metadata__" if which == "metadata" else which]
    entry |= change
    for name in [name for name, value in change.items() if value is None]:
        del entry[name]
    write(path, header, data)
    assert reason in refused(lambda: load_checkpoint(path))


@pytest.mark.parametrize(
    "header", [b"[]", b'{"a":1,"a":2}', b"[" * 5000, b"\xff", b"{}" + b" " * 9_000_000, b"9" * 5000]
)
def test_a_header_that_is_none_is_refused(path, header):
    path.write_bytes(joined(header, bytes(8)))
    refused(lambda: load_checkpoint(path))


@WITH_PIPES
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    pipe = tmp_path / "pipe.safetensors"
    os.mkfifo(pipe)
    assert "is a pipe, expected a file" in refused(lambda: load_checkpoint(pipe))


def test_the_order_of_the_names_is_that_of_the_metadata(path):
    header, data = parts(path)
    header["__metadata__"]["order"] = '["b", "a"]'
    write(path, header, data)
    assert list(load_checkpoint(path)[0]) == ["b", "a"]


def deep():
    values = []
    values.append(values)
    return values


def shared():
    values = [1]
    for _ in range(40):
        values = [values, values]
    return values


@pytest.mark.parametrize(
    "value, error",
    [
        ([0] * 400_001, "values, expected at most 400,000: save more as arrays"),
        ("x" * 9_000_000, "info has 9,000,009 characters, expected at most 8,388,608"),
        (10**300, r"info\['a'\] is an integer of more than 299 digits"),
        (deep(), "info is nested too deeply"),
        (shared(), "too many values, expected at most 400,000: save more as arrays"),
    ],
    ids=["values", "characters", "digits", "deep", "shared"],
)
def test_what_could_not_be_loaded_is_not_saved(path, value, error):
    before = path.read_bytes()
    with pytest.raises(ValueError, match=error):
        save_checkpoint(path, {}, {"a": value})
    assert path.read_bytes() == before


# ---- Trainer.load ----


@pytest.mark.parametrize(
    "part, change, reason",
    [
        ("", {"model": None}, "name is None in the file and 'Transformer' in the model"),
        ("", {"model": [1]}, "model=[1], expected a dict"),
        ("", {"model": {"name": [1]}}, "name is [1] in the file and 'Transformer' in the model"),
        ("", {"trainer": None}, "seed is None in the file and 0 in the trainer"),
        ("", {"trainer": 3}, "trainer=3, expected a dict"),
        ("", {"n_steps": None}, "n_steps=None is a NoneType, expected an int"),
        ("", {"n_steps": -1}, "n_steps=-1, expected at least 0"),
        ("", {"n_steps": 1.0}, "n_steps=1.0 is a float, expected an int"),
        ("", {"n_steps": True}, "n_steps=True is a bool, expected an int"),
        ("", {"n_steps": 10**200}, "expected at most 9223372036854775807"),
        ("", {"loss_scale": 3}, "loss_scale=3, expected a scale and a number of steps"),
        ("", {"loss_scale": [1.0, 2, 3]}, "expected a scale and a number of steps"),
        ("", {"loss_scale": [float("nan"), 2]}, "loss_scale[0]=nan"),
        ("", {"loss_scale": [1.0, -2]}, "loss_scale[1]=-2"),
        ("model", {"cache": 1}, "model has settings that this npformer does not know: ['cache']"),
        ("model", {"dropout": float("nan")}, "dropout is nan in the file and 0.1 in the model"),
        ("model", {"n_layers": 10**12}, "n_layers is 1000000000000 in the file and 1 in the model"),
        ("trainer", {"cache": 1}, "settings that this npformer does not know: ['cache']"),
        ("trainer", {"seed": "1"}, "seed is '1' in the file and 0 in the trainer"),
        ("trainer", {"frozen": [1]}, "frozen is [1] in the file and [] in the trainer"),
        ("trainer", {"optimizer": "Adam"}, "optimizer is 'Adam' in the file and {"),
        ("trainer", {"optimizer": {"name": [1]}}, "optimizer is {'name': [1]} in the file and {"),
    ],
)
def test_a_forged_training_is_refused(training, part, change, reason):
    if part:
        _, info = load_checkpoint(training)
        change = {part: info[part] | change}
    rewrite(training, info=change)
    trainer = Trainer(MODEL, Adam(0.01))
    before = trainer.flat_params.copy()
    assert reason in refused(lambda: trainer.load(training))
    np.testing.assert_array_equal(trainer.flat_params, before)


# ---- descriptions and names ----


@pytest.mark.parametrize(
    "description", [None, [1], {}, {"name": 3}, {"name": "Transformer", "x": 1}, {"name": "exec"}]
)
def test_a_description_of_nothing_is_named(description):
    with pytest.raises(ValueError, match="expected"):
        from_description(description)


BYTENET = ByteNet(9, 10, d_model=8, n_sets=1)


@pytest.mark.parametrize(
    "model, change, numbers",
    [
        (MODEL, {"max_len": 10**12}, "max_len=1000000000000 needs 8,000,000,000,000 "),
        (BYTENET, {"dilations": [1, 2, 4, 8, 10**12]}, ""),
        (BYTENET, {"unfold": [1e300, 0]}, ""),
        (BYTENET, {"unfold": [1, 10**12]}, ""),
    ],
)
def test_a_description_that_the_arrays_contradict_is_refused(model, change, numbers):
    """Also by columns of a convolution that no memory has."""
    arrays = tree.to_arrays(model.init(0), "params")
    assert from_description(describe(model), arrays) == model
    with pytest.raises(ValueError, match=f"{numbers}numbers for the positions"):
        from_description(describe(model) | change, arrays)


@pytest.mark.parametrize("names", ["a a.b", "a.b a", "a a.b.c"])
def test_names_that_contradict_each_other_are_refused(names):
    arrays = {f"params.{name}": np.zeros(1) for name in names.split()}
    with pytest.raises(ValueError, match="leads through a leaf or ends at one"):
        tree.from_arrays(arrays, "params")


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
    assert forge_checkpoints.main(["--files", "300", "--seed", "3"]) == 0
    assert "\n0 failures in" in capsys.readouterr().out
