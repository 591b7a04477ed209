"""What files of models may not say: each row of ``refused.toml`` is named."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("gguf")
from safetensors.numpy import save_file  # noqa: E402, which needs them
from tiny import saved, tiny_encoder  # noqa: E402

from tests.pretrained.folders import (  # noqa: E402, which needs them, too
    PIECES,
    configure,
    edit,
    gguf_file,
    refused,
    warned,
)

ROWS = tomllib.loads(Path(__file__).with_name("refused.toml").read_text("utf-8"))["row"]


def without_tokenizer(folder):
    """Delete the files of a tokenizer."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    return folder


def with_byte_pairs(folder):
    """Put GPT-2's vocab.json and merges.txt in the place of a tokenizer."""
    without_tokenizer(folder)
    edit(folder / "vocab.json", a=0, b=1, ab=2)
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    return folder


def with_word_pieces(folder):
    """Put BERT's vocab.txt in the place of a tokenizer."""
    without_tokenizer(folder)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return folder


def with_sentences(folder):
    """A BERT, the mean of its tokens, and a linear map."""
    saved(folder, tiny_encoder())
    configure(folder, "pooling", "after_pooling")  # which npformer alone writes
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for place in ("1_Pooling", "2_Dense"):
        (folder / place).mkdir()
    edit(folder / "1_Pooling" / "config.json", pooling_mode="mean")
    edit(folder / "2_Dense" / "config.json", in_features=16, out_features=5, bias=False)
    tensors = {"linear.weight": np.ones((5, 16), "f4")}
    save_file(tensors, folder / "2_Dense" / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['model']}-{row.get('reason', row.get('warning')):.50}"
)
def test_what_a_file_may_not_say_is_named(row, copy, tmp_path):
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
    elif row["model"] == "byte pairs":
        path = with_byte_pairs(copy("gpt2"))
    elif row["model"] == "word pieces":
        path = with_word_pieces(copy("bert"))
    else:
        path = copy(row["model"])
    file = path / row.get("file", "config.json") if path.is_dir() else path
    if "text" in row:
        file.write_text(row["text"])
    elif "json" not in row:
        file.unlink()
    elif path.is_dir():
        edit(file, **values)
    if "warning" in row:
        warned(path, row["warning"])
    else:
        assert row["reason"] in refused(path)
