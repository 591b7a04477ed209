"""A command that is given a model of another kind names the kind, and the commands that take it."""

import importlib
import json

import pytest

from npformer import LanguageModel, Transformer, pretrained
from npformer.files.checkpoint import BEST, LAST, RESULT, save_checkpoint
from npformer.models import describe

SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8}
LLAMA = {"positions": "rotary", "norm_type": "rms_norm", "activation": "swiglu", "bias": False}
COMMANDS = {  # what each is called with, where PATH has the model
    "chat": "--model PATH --prompt a",
    "classify": "--model PATH a",
    "evaluate": "--model PATH --data PATH --src en --tgt fr",
    "export": "--model PATH --to PATH.exported",
    "generate": "--model PATH a",
    "search": f"--model PATH --query a {__file__}",
    "translate": "--model PATH a",
}
OF_TRAIN_GPT = "holds a language model of train-gpt: npformer generate takes it"
OF_TRANSFORMERS = (
    "holds a language model of the library transformers: npformer generate and chat take it"
)
AN_ENCODER = "holds an encoder of the library transformers: npformer classify and search take it"
A_MARIAN = (
    "holds a translation model of the library transformers: no command takes it, "
    "but npformer.pretrained.load in Python"
)
WITHOUT_TEXT = "holds a model without the tokens of its texts: no command takes it"
TRANSLATES = "holds a translation model: npformer translate, evaluate and export take it"


def folder_of(kind, path):
    """A folder with a model of a kind."""
    language = LanguageModel(11, **SIZES, **LLAMA, scale_embeddings=False)
    translation = Transformer(11, 11, **SIZES)
    if kind == "transformers":
        pretrained.save(path, language, language.init(0))
        return path
    if kind == "gguf":
        path.mkdir()
        (path / "a.gguf").touch()
        return path
    if kind in ("bert", "marian"):  # its family is named by its settings
        path.mkdir()
        (path / "config.json").write_text(json.dumps({"model_type": kind}))
        return path
    model = language if kind == "train-gpt" else translation
    arrays = {"params.x": language.init(0)["embedding"]}
    if kind == "translation":
        arrays |= dict.fromkeys(("subwords.source", "subwords.target"), arrays["params.x"])
    name = {"train-gpt": BEST, "training": LAST}.get(kind, RESULT)
    save_checkpoint(path / name, arrays, {"model": describe(model)})
    return path


@pytest.fixture
def error_of(failure):
    """A function that returns the line of a command that cannot use the model of a path."""

    def error_of(name, path):
        command = importlib.import_module(f"npformer.commands.{name}")
        return failure(command.main, *COMMANDS[name].replace("PATH", str(path)).split())

    return error_of


KINDS = {  # what each holds, and the commands that do not take it
    "train-gpt": (OF_TRAIN_GPT, "chat classify export search translate"),
    "transformers": (OF_TRANSFORMERS, "classify evaluate export search translate"),
    "gguf": (OF_TRANSFORMERS, "classify evaluate export search translate"),
    "bert": (AN_ENCODER, "chat evaluate export generate translate"),
    "marian": (A_MARIAN, "chat classify evaluate export generate search translate"),
    "translation": (TRANSLATES, "chat classify generate search"),
    "copy": (WITHOUT_TEXT, "chat classify export generate search translate"),
    "training": (WITHOUT_TEXT, "chat classify export generate search translate"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_another_kind_is_named(kind, tmp_path, error_of):
    words, not_taken_by = KINDS[kind]
    path = folder_of(kind, tmp_path / "model")
    for name in not_taken_by.split():
        assert f"{path} {words}" in error_of(name, path), name


def test_what_holds_no_model_is_left_to_who_loads_it(tmp_path, error_of):
    for name in COMMANDS:
        assert " holds " not in error_of(name, tmp_path), name


def test_a_checkpoint_is_taken_before_a_gguf_file_beside_it(tmp_path, error_of):
    path = folder_of("copy", tmp_path)
    (path / "a.gguf").touch()
    assert f"{path} {WITHOUT_TEXT}" in error_of("classify", path)
