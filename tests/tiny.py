"""Tiny random models in folders as the library transformers writes them,
with a tokenizer of bytes.
"""

import json

from npformer import Encoder, LanguageModel
from npformer.pretrained import save
from npformer.pretrained.library_tokenizers import byte_pairs, import_tokenizers
from npformer.pretrained.tokenizer import Tokenizer
from npformer.tokens import Subwords

CHATML = "<|im_start|>", "<|im_end|>"


def tiny_tokenizer(special=CHATML, template=None):
    """A token for each byte, and some special ones, of which the last ends a text."""
    alphabet = sorted(import_tokenizers().pre_tokenizers.ByteLevel.alphabet())
    ids = {token: i for i, token in enumerate([*alphabet, *special])}
    tokenizer = byte_pairs(ids, {})
    tokenizer.add_special_tokens(list(special))
    end = special[-1] if special else None
    eos_ids = (ids[end],) if special else ()
    about = {"eos_token": end, "chat_template": template}
    files = {
        "tokenizer.json": tokenizer.to_str().encode(),
        "tokenizer_config.json": json.dumps(about).encode(),
    }
    templates = {} if template is None else {"default": template}
    return Tokenizer(tokenizer, files, {"eos": ids.get(end)}, eos_ids, templates)


def tiny_language_model(max_len=64, special=CHATML, template=None):
    """The arguments of a chat: a model as Llama, its parameters and its tokenizer."""
    tokenizer = tiny_tokenizer(special, template)
    settings = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32}
    settings |= {"max_len": max_len, "scale_embeddings": False}
    model = LanguageModel(
        len(tokenizer), **settings, activation="swiglu", norm_type="rms_norm", bias=False
    )
    return model, model.init(0), tokenizer


def tiny_encoder(seed=0):
    """A model as MiniLM, its parameters and its tokenizer."""
    tokenizer = tiny_tokenizer()
    settings = {"d_model": 16, "n_heads": 2, "n_layers": 1}
    settings |= {"d_ff": 32, "max_len": 40, "scale_embeddings": False}
    settings |= {"norm": "post", "activation": "gelu_erf", "positions": "learned", "pad_id": None}
    model = Encoder(len(tokenizer), **settings, task=None, n_types=2, embedding_norm=True)
    return model, model.init(seed), tokenizer


def tiny_translation_tokenizer(folder):
    """Write the files of a tokenizer as Marian's to a folder; return the vocabulary."""
    subwords = Subwords.learn(["the man has a dog", "the dogs and the men"], size=30)
    pieces = ["</s>", "<unk>", ">>fra<<", *subwords.pieces(range(4, len(subwords))), "<pad>"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(subwords.model)
    return vocabulary


def saved(folder, made):
    """Write a model to a folder; return its path as text."""
    save(folder, *made)
    return str(folder)
