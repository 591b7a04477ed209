"""The tokenizer in a GGUF file, as the files of a folder."""

import json
from typing import Any, NamedTuple

from npformer.checks import shown, warn
from npformer.errors import UserError
from npformer.pretrained.files import Files
from npformer.pretrained.library_tokenizers import around_text, byte_pairs, import_tokenizers
from npformer.pretrained.rules import parse_table
from npformer.pretrained.tokenizer_settings import (
    GENERATION_FILE,
    SETTINGS_FILE,
    TOKENIZER_FILE,
    listed_templates,
)

TOKEN_NAMES = parse_table("""
    bos  bos
    eos  eos
    pad  padding
    unk  unknown
    """)
CHAT_TEMPLATE = "tokenizer.chat_template"
# Types of tokens: one that no text has, and one that is never divided.
CONTROL, USER_DEFINED = 3, 4
BEFORE_DIGITS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
AFTER_DIGITS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class Words(NamedTuple):
    """How a tokenizer divides a text into words, which it then divides into tokens."""

    pattern: str | None = None  # a regular expression of a word; None divides as GPT-2 does
    digits_apart: bool = False  # whether each digit is a word
    nfc: bool = False  # whether the text is normalised to NFC before
    keeps_tokens: bool = False  # whether a word that is a token stays whole


LLAMA3_WORDS = Words(rf"{BEFORE_DIGITS}\p{{N}}{{1,3}}{AFTER_DIGITS}", keeps_tokens=True)
WORDS = {  # by tokenizer.ggml.pre
    "smollm": Words(digits_apart=True),
    "gpt-2": Words(),
    "qwen2": Words(rf"{BEFORE_DIGITS}\p{{N}}{AFTER_DIGITS}", nfc=True),
    "llama-bpe": LLAMA3_WORDS,
    "llama3": LLAMA3_WORDS,
    "llama-v3": LLAMA3_WORDS,
}


def tokenizer_files(about: dict) -> Files:
    """The files of the tokenizer in what a file says of itself."""
    said = {key.removeprefix("tokenizer.ggml."): value for key, value in about.items()}
    templates = {}
    for key, text in about.items():
        if key == CHAT_TEMPLATE or key.startswith(f"{CHAT_TEMPLATE}."):
            templates[key.removeprefix(CHAT_TEMPLATE).removeprefix(".") or "default"] = text
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings["chat_template"] = listed_templates(templates)
    for role, name in TOKEN_NAMES.items():
        id_ = said.get(f"{name}_token_id")
        if id_ is not None:
            settings[f"{role}_token"] = said["tokens"][id_]
    ends = [said.get(f"{name}_token_id") for name in ("eos", "eot", "eom")]
    generation = {"eos_token_id": [id_ for id_ in ends if id_ is not None]}
    return {
        TOKENIZER_FILE: whole_tokenizer(said).to_str().encode(),
        SETTINGS_FILE: json.dumps(settings).encode(),
        GENERATION_FILE: json.dumps(generation).encode(),
    }


def words_of(said: dict) -> Words:
    """How a file says that text is divided into words."""
    model = said.get("model")
    name = said.get("pre", "default")
    if model != "gpt2" or name not in (*WORDS, "default"):
        supported = " or ".join(map(repr, WORDS))
        raise UserError(
            f"it has tokenizer.ggml.model={shown(model)} with tokenizer.ggml.pre={shown(name)}, "
            f"supported is 'gpt2' with {supported}"
        )
    if name == "default":
        warn(
            "it does not say how text is divided into words (tokenizer.ggml.pre): "
            "divided as GPT-2 does, which may give other tokens. "
            "A newer llama.cpp converts it again"
        )
        return WORDS["gpt-2"]
    return WORDS[name]


def whole_tokenizer(said: dict):
    """The tokenizer of the library tokenizers, by the keys of a file without their beginnings."""
    words = words_of(said)
    tokens = said["tokens"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizers = import_tokenizers()
    steps = tokenizers.pre_tokenizers
    merges = {f"tokenizer.ggml.merges: entry {i}": x for i, x in enumerate(said["merges"])}
    inner = byte_pairs(vocabulary, merges, ignore_merges=words.keeps_tokens)
    if words.digits_apart:
        digits = steps.Digits(individual_digits=True)
        inner.pre_tokenizer = steps.Sequence([digits, inner.pre_tokenizer])
    if words.pattern is not None:
        split = steps.Split(tokenizers.Regex(words.pattern), "isolated")
        in_bytes = steps.ByteLevel(add_prefix_space=False, use_regex=False)
        inner.pre_tokenizer = steps.Sequence([split, in_bytes])
    if words.nfc:
        inner.normalizer = tokenizers.normalizers.NFC()
    before = [tokens[said["bos_token_id"]]] if said.get("add_bos_token") else []
    after = [tokens[said["eos_token_id"]]] if said.get("add_eos_token") else []
    if before or after:
        inner.post_processor = around_text(before, after, vocabulary)
    undivided = []
    for token, kind in zip(tokens, said["token_type"], strict=True):
        if kind in (CONTROL, USER_DEFINED):
            is_special = kind == CONTROL
            undivided.append(tokenizers.AddedToken(token, special=is_special, normalized=False))
    inner.add_tokens(undivided)
    return inner
