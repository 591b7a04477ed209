"""The kernels of commands are compiled before a training, and those of decoding while it trains."""

import json

import pytest

from npformer.commands import compile as command

import npformer as nf
from npformer.models import describe

SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8}


def test_the_command_compiles_what_is_not_on_disk(capsys):
    assert command.main([]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "decoding: all kernels are on disk"


@pytest.mark.parametrize("is_new", [True, False])
def test_decoding_is_compiled_meanwhile_by_a_process_if_anything_was_new(is_new, monkeypatch):
    started = []
    monkeypatch.setattr(command, "compile_once", lambda trainer, progress: is_new)
    monkeypatch.setattr(command, "cores", lambda: 2)
    monkeypatch.setattr(command.subprocess, "Popen", lambda given, **options: started.append(given[-1]) or Process)
    command.compile_ahead(nf.Trainer(nf.LanguageModel(11, **SIZES), nf.Adam(0.1)), progress=False)
    assert len(started) == is_new
    for code in started:
        exec(code, {})  # what the process does


class Process:
    @staticmethod
    def kill():
        pass


@pytest.mark.parametrize("model", [nf.Transformer(11, 11, **SIZES), nf.LanguageModel(11, **SIZES)])
def test_a_model_is_decoded_by_its_description(model):
    command.decode_like(json.dumps(describe(model)))
