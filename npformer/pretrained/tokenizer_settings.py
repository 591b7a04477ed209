"""What the files of a folder say of its tokenizer and of single tokens, in several formats."""

import json
from pathlib import Path
from typing import Any

from npformer.checks import check_flag, shown, warn
from npformer.pretrained.files import Files, json_or_empty, read_bytes, text_in
from npformer.pretrained.sentences import PROMPTS_FILE, TEXTS_FILE
from npformer.tokens.tokenizers import CHARACTERS, PIECES

TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
GENERATION_FILE = "generation_config.json"
FILES_OF_TOKENIZER = (
    TOKENIZER_FILE,
    SETTINGS_FILE,
    "special_tokens_map.json",
    "added_tokens.json",
    TEMPLATE_FILE,
    GENERATION_FILE,
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "source.spm",
    "target.spm",
    CHARACTERS,
    PIECES,
    TEXTS_FILE,
    PROMPTS_FILE,
)
# Those of other kinds of tokenizers, which are not read.
FILES_OF_OTHER_KINDS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tekken.json")
TEMPLATES_FOLDER = "additional_chat_templates"
FORM = "lstrip", "rstrip", "single_word", "normalized"  # how a text has a special token
ROLES = "bos", "eos", "unk", "sep", "pad", "cls", "mask"  # of special tokens
# The settings that hold several of them.
LISTS_OF_TOKENS = (
    "additional_special_tokens",
    "extra_special_tokens",
    "model_specific_special_tokens",
)


def files_of_tokenizer(folder: Path) -> Files:
    """The files of a folder of which a tokenizer is made, by their names."""
    there = [name for name in FILES_OF_TOKENIZER if (folder / name).exists()]
    files = {name: read_bytes(folder / name) for name in there}
    paths = sorted((folder / TEMPLATES_FOLDER).glob("*.jinja"))
    if paths:  # one file then has all templates
        templates = {path.name: read_bytes(path) for path in paths}
        texts = {path.stem: text_in(templates, path.name) for path in paths}
        if TEMPLATE_FILE in files:
            texts["default"] = text_in(files, TEMPLATE_FILE)
            del files[TEMPLATE_FILE]
        about = json_or_empty(files, SETTINGS_FILE) | {"chat_template": listed_templates(texts)}
        files[SETTINGS_FILE] = json.dumps(about).encode()
    return files


def warn_of_others(folder: Path) -> None:
    """Warn if a folder has a tokenizer of another kind alone."""
    advice = "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers"
    for name in FILES_OF_OTHER_KINDS:
        if (folder / name).exists():
            warn(
                f"{name} is not read, so there is no tokenizer; "
                f"npformer reads tokenizer.json: {advice} writes it"
            )


def about_tokens(files: Files) -> dict:
    """What tokenizer_config.json says, and the files that older programs wrote beside it."""
    about = json_or_empty(files, SETTINGS_FILE)
    if "added_tokens_decoder" in about:  # then the others are not read there, either
        return about
    about |= json_or_empty(files, "special_tokens_map.json")
    added = json_or_empty(files, "added_tokens.json")
    special = special_tokens(about)
    tokens = {}
    for token, id_ in added.items():
        is_special = token in special
        tokens[id_] = {"content": token, "normalized": not is_special, "special": is_special}
    return about | {"added_tokens_decoder": tokens}


def special_tokens(about: dict) -> dict[str, dict]:
    """All tokens that have a meaning of their own, by their texts, and how a text has each."""
    tokens = [about.get(f"{role}_token") for role in ROLES]
    for key in LISTS_OF_TOKENS:
        tokens.extend(_listed_tokens(about, key))
    special = {}
    for token in tokens:
        text = text_of(token)
        if isinstance(text, str) and text:  # the last one of a text decides, as in transformers
            special[text] = _form_of(token)
    return special


def _listed_tokens(about, key):
    """The tokens in a list, or in a dict by their names."""
    tokens = about.get(key)
    if tokens is None:
        return []
    if not isinstance(tokens, (list, dict)):
        kind = type(tokens).__name__
        raise TypeError(f"{key}={shown(tokens)} is a {kind}, expected a list or a dict of tokens")
    return tokens.values() if isinstance(tokens, dict) else tokens


def _form_of(token):
    """How a text has a token, which only a dict describes."""
    if not isinstance(token, dict):
        return {"normalized": False}
    form = {}
    for key in FORM:
        if key in token:
            form[key] = check_flag(f"the token {shown(token['content'])}: {key}", token[key])
    return form


def text_of(token: Any) -> Any:
    """The text of a token, which some files have in a dict."""
    return token.get("content") if isinstance(token, dict) else token


def templates_in(value) -> dict[str, str]:
    """The templates of chats by their names, of a text, or of a list with a dict for each."""
    if isinstance(value, str):
        return {"default": value}
    templates = value or {}
    if isinstance(value, list):
        templates = {each.get("name"): each.get("template") for each in value}
    texts = {}
    for name, text in templates.items():
        if isinstance(text, str):
            texts[name] = text
        else:
            warn(
                f"the template of chats {shown(name)} in tokenizer_config.json "
                "is left out, as it has no text"
            )
    return texts


def listed_templates(templates: dict[str, str]) -> list[dict]:
    """What ``templates_in`` reads."""
    return [{"name": name, "template": text} for name, text in templates.items()]
