"""What files of models may say, and may not: each row of ``read.toml`` and ``refused.toml``."""

import json
from operator import attrgetter

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("gguf")
from safetensors.numpy import load_file, save_file  # noqa: E402
from tables import table  # noqa: E402

from npformer import LanguageModel, pretrained  # noqa: E402
from npformer.models import LowRank  # noqa: E402
from npformer.pretrained.families.naming import Naming  # noqa: E402
from npformer.training import CheckpointError  # noqa: E402
from tests.pretrained.folders import (  # noqa: E402, which needs them
    MEAN,
    configure,
    edit,
    gguf_file,
    refused,
    save_new,
    sentence_folder,
    warned,
    without_tokenizer,
    write_byte_pairs,
    write_word_pieces,
)

# of a GPT-2
SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 8}
SIZES |= {"scale_embeddings": False, "positions": "learned"}


def with_sentences(folder):
    """A BERT, the mean of its tokens, and a linear map."""
    settings = {"in_features": 16, "out_features": 5, "bias": False}
    tensors = {"linear.weight": np.ones((5, 16), "f4")}
    return sentence_folder(folder, MEAN | {"2_Dense": ("Dense", settings, tensors)})


def with_adapters(folder):
    """A language model with adapters of rank 2."""
    model = LanguageModel(11, **SIZES)
    with pytest.warns(UserWarning, match="npformer alone reads a model with adapters"):
        return save_new(folder, LowRank(model, model.init(0), rank=2))


CHANGES = "file", "json", "text", "removed", "settings"
SAID = "reason", "warning", "has", "tokens", "texts"
FIELDS = {"model", "pieces", "vocab", *CHANGES, *SAID}


def name_of(row):
    """The model, what is changed in it, and what is said of it or found in it."""
    shown = [row["model"]]
    shown += [f"{row[name]}"[:50] for name in (*CHANGES, *SAID) if name in row]
    return " - ".join(shown)


ROWS = table(__file__, "refused")["row"] + table(__file__, "read")["row"]


def with_pieces(folder, row):
    """A GPT-2 of older files, with these pieces and room for more tokens."""
    model = LanguageModel(row["vocab"], **SIZES)
    return write_byte_pairs(save_new(folder / "pieces", model), row["pieces"])


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_what_a_file_says_is_read_or_named(row, copy, tmp_path):
    assert not row.keys() - FIELDS
    values = json.loads(row.get("json", "{}"))
    if row["model"] == "a GGUF file":
        path, _ = gguf_file(tmp_path, values)
    elif row["model"] == "sentences":
        path = with_sentences(tmp_path / "sentences")
    elif row["model"] == "sentences without a tokenizer":
        path = without_tokenizer(with_sentences(tmp_path / "sentences"))
    elif row["model"] == "sentences of characters":
        path = without_tokenizer(with_sentences(tmp_path / "sentences"))
        (path / "npformer_characters.txt").write_text("abc ")
    elif row["model"] == "adapters":
        path = with_adapters(tmp_path / "adapters")
    elif row["model"] == "byte pairs":
        path = write_byte_pairs(without_tokenizer(copy("gpt2")), ["a", "b", "ab"], "a b\n")
    elif row["model"] == "pieces":
        path = with_pieces(tmp_path, row)
    elif row["model"] == "word pieces":
        path = write_word_pieces(without_tokenizer(copy("bert")))
    else:
        path = copy(row["model"])
    file = path / row.get("file", "config.json") if path.is_dir() else path
    if "text" in row:
        file.write_text(row["text"])
    elif "json" not in row:
        file.unlink()
    elif path.is_dir():
        file.parent.mkdir(exist_ok=True)
        edit(file, **values)
    if "removed" in row:
        configure(path, *row["removed"])
    settings = json.loads(row.get("settings", "{}"))
    if "warning" in row:
        warned(path, row["warning"])
    elif "reason" in row:
        assert row["reason"] in refused(path, **settings)
    else:
        model, _, tokenizer = pretrained.load(path, **settings)
        for name, value in json.loads(row.get("has", "{}")).items():
            assert attrgetter(name)(model) == value, name
        for text, ids in json.loads(row.get("tokens", "{}")).items():
            assert tokenizer.encode(text) == ids
        for text, ids in json.loads(row.get("texts", "{}")).items():
            assert tokenizer.decode(ids) == text


def test_a_state_dict_that_lacks_a_layers_tensor_is_refused():
    tensors = {"layers.0.self_attn.in_proj_weight": np.ones((6, 2)), "a.weight": np.ones((2, 2))}
    options = {"names": {"embedding": "a", "output": "a"}, "model": LanguageModel, "n_heads": 2}
    line = "something is missing, or has another form: KeyError 'layers.0.linear1.weight'"
    with pytest.raises(CheckpointError, match=line):
        pretrained.load(tensors, **options)


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        ({}, "missing: layers.0.attention.qkv.weight.A"),
        (
            {"adapters.layers.0.attention.qkv.weight.A": np.ones((8, 3), "f4")},
            "of another shape: layers.0.attention.qkv.weight.A (8, 3) and not (8, 2)",
        ),
    ],
    ids=["missing", "wider"],
)
def test_a_tensor_of_adapters_that_is_not_as_expected_is_named(tmp_path, left, reason):
    path = with_adapters(tmp_path / "adapters")
    tensors = load_file(path / "model.safetensors")
    del tensors["adapters.layers.0.attention.qkv.weight.A"]
    save_file(tensors | left, path / "model.safetensors")
    assert reason in refused(path)


@pytest.mark.parametrize("error", [KeyError, TypeError, ValueError])
def test_a_bug_of_npformer_is_not_told_as_a_damaged_file(originals, monkeypatch, error):
    def read(naming, model, tensors, dtype):
        raise error("bug")

    monkeypatch.setattr(Naming, "read", read)
    with pytest.raises(error, match="bug") as caught:
        pretrained.load(originals["llama"])
    assert caught.type is error
