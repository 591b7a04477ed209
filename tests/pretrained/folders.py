"""Files of models, as other libraries write them, and what is said of them."""

import json

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file
from tiny import saved, tiny_encoder

from npformer import pretrained, tree
from npformer.training import CheckpointError
from tests.tools.forge_pretrained import gguf_of, write_gguf

# Of BERT's vocab.txt.
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "bc", "##d", "A", "é", "e", "."]
SPECIAL = {"<s>": 3, "</s>": 3}  # kinds of tokens


def read(path):
    """What a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def save_new(path, model, tokenizer=None, **names):
    """Save a model with its first parameters. Returns its folder."""
    pretrained.save(path, model, model.init(0), tokenizer, **names)
    return path


def model_of(path, **settings):
    return pretrained.load(path, **settings).model


def tokenizer_of(path):
    return pretrained.load(path)[2]


def edit(path, *removed, **values):
    """Change values of a JSON file, which may be new, and remove others by their keys."""
    about = (read(path) if path.exists() else {}) | values
    path.write_text(json.dumps({key: x for key, x in about.items() if key not in removed}))


def configure(folder, *removed, **values):
    """Change the settings of a model."""
    edit(folder / "config.json", *removed, **values)


def without_tokenizer(folder):
    """Delete the files of a tokenizer."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    return folder


def write_word_pieces(folder):
    """Write BERT's vocab.txt."""
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return folder


def write_byte_pairs(folder, pieces, merges=""):
    """Write a tokenizer as older programs did: vocab.json and merges.txt."""
    edit(folder / "vocab.json", **{piece: i for i, piece in enumerate(pieces)})
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}")
    return folder


MEAN = {"1_Pooling": ("Pooling", {"pooling_mode": "mean"}, None)}


def sentence_folder(folder, modules, **files):
    """A BERT with modules of sentence-transformers, {name: (class, its config.json, its tensors)},
    and JSON files by their names without the ending.
    """
    saved(folder, tiny_encoder())
    configure(folder, "pooling", "after_pooling")  # which npformer alone writes
    modules = {"": ("Transformer", {}, None)} | modules
    listed = []
    for place, (kind, settings, tensors) in modules.items():
        listed.append({"path": place, "type": f"sentence_transformers.models.{kind}"})
        (folder / place).mkdir(exist_ok=True)
        configure(folder / place, **settings)
        if tensors:
            save_file(tensors, folder / place / "model.safetensors")
    for name, content in ({"modules": listed} | files).items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def refused(path, **settings):
    """The reason why a model is refused: one line that names its folder or file."""
    with pytest.raises(CheckpointError) as caught:
        pretrained.load(path, **settings)
    text = str(caught.value)
    assert text.isprintable() and str(path) in text
    assert text.endswith("see help(npformer.pretrained.load)")
    return text


def warned(path, message):
    """Load a model. A warning has to contain this message."""
    with pytest.warns(UserWarning) as caught:
        loaded = pretrained.load(path)
    messages = [str(each.message) for each in caught]
    assert any(message in each for each in messages), messages
    return loaded


def warned_of_key(path, key):
    """Load a model. A warning has to name a key, and its value, that npformer does not read."""
    return warned(path, f"has keys that npformer does not read: {key}")


def assert_loads(path, params, **settings):
    """A model has exactly these parameters."""
    loaded = pretrained.load(path, **settings)[1]
    tree.map_leaves(np.testing.assert_array_equal, loaded, params)


def gguf_file(folder, about=(), added=(), family="llama", tensors=()):
    """A model in a GGUF file, with some more values, tokens and tensors. Also its tokens.

    A value of None is left out.
    """
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    kinds = dict.fromkeys([*alphabet, "th", "the"], 1) | SPECIAL | dict(added)
    tokens = list(kinds)
    values, parameters = gguf_of(family, len(tokens), n_kv_heads=2, d_ff=16, max_len=64)
    values |= {
        f"{family}.attention.layer_norm_rms_epsilon": 1e-6,
        "tokenizer.ggml.bos_token_id": tokens.index("<s>"),
        "tokenizer.ggml.eos_token_id": tokens.index("</s>"),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
    }
    values = {name: x for name, x in (values | dict(about)).items() if x is not None}
    parameters |= dict(tensors)
    path = folder / "model.gguf"
    merges = values.pop("tokenizer.ggml.merges", ["t h", "th e"])
    write_gguf(path, family, values, parameters, tokens, list(kinds.values()), merges)
    return path, tokens
