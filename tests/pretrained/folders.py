"""Files of models, as other libraries write them, and what is said of them."""

import json

import numpy as np
import pytest
import tokenizers

from npformer import pretrained, tree
from npformer.training import CheckpointError
from tests.tools.forge_pretrained import gguf_of, write_gguf

# Of BERT's vocab.txt.
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "bc", "##d", "A", "é", "e", "."]
SPECIAL = {"<s>": 3, "</s>": 3}  # kinds of tokens


def edit(path, *removed, **values):
    """Change values of a JSON file, which may be new, and remove others by their keys."""
    about = (json.loads(path.read_text()) if path.exists() else {}) | values
    path.write_text(json.dumps({key: x for key, x in about.items() if key not in removed}))


def configure(folder, *removed, **values):
    """Change the settings of a model."""
    edit(folder / "config.json", *removed, **values)


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
