"""The kernels of commands are compiled before a training, and those of decoding while it trains."""

import json

import pytest

from npformer.commands import compile as command
from npformer.commands.shared import compiling

import npformer as nf
from npformer.cpu import ahead
from npformer.models import describe

SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8}


def test_the_command_compiles_what_is_not_on_disk(call):
    code, shown, _ = call(command.main)
    assert (code, shown.splitlines()[1]) == (0, "decoding: all kernels are on disk")


def test_decoding_is_compiled_meanwhile_by_a_process_once(tmp_path, monkeypatch):
    started, note = [], tmp_path / "note"
    monkeypatch.setattr(compiling, "compile_once", lambda trainer, progress: None)
    monkeypatch.setattr(compiling, "note_of", lambda ops, work: note)
    monkeypatch.setattr(compiling, "cores", lambda: 2)
    monkeypatch.setattr(ahead, "start_python", started.append)
    trainer = nf.Trainer(nf.LanguageModel(11, **SIZES), nf.Adam(0.1))
    compiling.compile_ahead(trainer, progress=False)
    exec(started[0], {})  # what the process does
    assert note.exists()
    compiling.compile_ahead(trainer, progress=False)
    assert len(started) == 1


@pytest.mark.parametrize("model", [nf.Transformer(11, 11, **SIZES), nf.LanguageModel(11, **SIZES)])
def test_a_model_is_decoded_by_its_description(model, tmp_path):
    compiling.decode_and_note(json.dumps(describe(model)), tmp_path / "note")
    assert list(tmp_path.iterdir()) == [tmp_path / "note"]


def test_the_command_says_that_nothing_can_be_kept(monkeypatch, call):
    monkeypatch.setattr(ahead, "KERNELS", {})
    code, _, errors = call(command.main)
    assert code != 0 and "no compiled kernel can be kept: npformer info says why" in errors
