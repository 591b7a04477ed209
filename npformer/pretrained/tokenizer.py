"""The tokenizer of a model that exists: text to ids and back."""

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from npformer.checks import shown
from npformer.data.subwords import import_sentencepiece
from npformer.pretrained.files import read_bytes, read_json, read_text
from npformer.runtime.extras import imported

FILES = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]
FILES += ["generation_config.json", "vocab.json", "merges.txt", "source.spm", "target.spm"]
CONTROL = 3  # the type of tokens of a GGUF file that no text has


class Tokenizer:
    """Text to ids and back, by the library tokenizers.

    Attributes
    ----------
    bos_id, eos_id, pad_id : int or None
        The tokens that begin and end a text, and the padding.
    chat_template : str or None
        How the turns of a chat become one text, in the language of Jinja: see ``npformer.pretrained.chat``.
    files : dict
        The names and bytes of the files from which it was read.
    """

    def __init__(self, tokenizer: Any, special: dict | None = None, chat_template: str | None = None):
        self.tokenizer, self.chat_template = tokenizer, chat_template
        self.files: dict[str, bytes] = {}
        tokenizer.no_truncation()
        tokenizer.no_padding()
        ids = {name: token if isinstance(token, int) else self.id_of(token) for name, token in (special or {}).items()}
        self.bos_id, self.eos_id, self.pad_id = (ids.get(name) for name in ("bos", "eos", "pad"))

    def __len__(self):
        return self.tokenizer.get_vocab_size()

    def __repr__(self):
        return f"<Tokenizer of {len(self):,} tokens>"

    def id_of(self, token):
        """The id of a token, or None."""
        token = token.get("content") if isinstance(token, dict) else token
        return self.tokenizer.token_to_id(token) if isinstance(token, str) else None

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of a text; with ``special`` also those tokens that the model expects around a text."""
        if not isinstance(text, str):
            raise TypeError(f"text={shown(text)} is a {type(text).__name__}, expected a str")
        with _refusing("tokenizer.json cannot divide this text"):  # its regular expressions may take too long
            return self.tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, ids: Any) -> str:
        """The text of ids, without tokens that no text has."""
        ids = [int(id_) for id_ in ids]
        with _refusing("tokenizer.json cannot make a text of these ids"):
            return self.tokenizer.decode(ids)


class MarianTokenizer:
    """Text to ids and back, by sentencepiece, with a model for each language and one list of their pieces."""

    chat_template = None

    def __init__(self, source, target, ids, begin_id):
        kind = import_sentencepiece().SentencePieceProcessor
        with _refusing("source.spm or target.spm is no sentencepiece model"):
            self.source, self.target = (kind(model_proto=model) for model in (source, target))
        self.ids, self.pieces, self.files = ids, {id_: piece for piece, id_ in ids.items()}, {}
        self.eos_id, self.pad_id, self.bos_id = ids["</s>"], ids["<pad>"], begin_id

    def __len__(self):
        return len(self.ids)

    def encode(self, text):
        """The ids of a text to translate, which may begin with a token of a language, such as ">>fra<<"."""
        language = re.match(">>.+?<<", text)
        pieces = self.source.encode(text[language.end() if language else 0 :], out_type=str)
        pieces = [*([language[0]] if language else []), *pieces, "</s>"]
        return [self.ids.get(piece, self.ids["<unk>"]) for piece in pieces]

    def decode(self, ids):
        """The text of ids of a translation."""
        special = {self.eos_id, self.pad_id, self.bos_id}
        return self.target.decode([self.pieces.get(int(id_), "<unk>") for id_ in ids if int(id_) not in special])


def check_tokenizer(tokenizer: Any, model: Any, fits: bool, expected: str) -> None:
    """Raise unless there is a tokenizer and the model fits, whose kind ``expected`` says."""
    if tokenizer is None or not fits:
        given = f"{type(model).__name__}, with{'out' * (tokenizer is None)} a tokenizer"
        raise ValueError(f"the model is of the kind {given}: expected a tokenizer and {expected}")


def tokenizer_of(folder: Path, config: dict, begin_id: int | None) -> Any:
    """The tokenizer in a folder, or None if it has none."""
    found: Any = None
    files = {name: folder / name for name in FILES if (folder / name).exists()}
    about = read_json(files["tokenizer_config.json"]) if "tokenizer_config.json" in files else {}
    names = ("bos", "eos", "pad")
    special = {name: about.get(f"{name}_token") or config.get(f"{name}_token_id") for name in names}
    if "tokenizer.json" in files:
        tokenizers, text = import_tokenizers(), read_text(files["tokenizer.json"])
        template = about.get("chat_template") if isinstance(about.get("chat_template"), str) else None
        if "chat_template.jinja" in files:
            template = read_text(files["chat_template.jinja"])
        with _refusing("tokenizer.json holds no tokenizer"):
            found = Tokenizer(tokenizers.Tokenizer.from_str(text), special, template)
    elif "source.spm" in files:
        source, target = (read_bytes(folder / f"{side}.spm") for side in ("source", "target"))
        found = MarianTokenizer(source, target, read_json(folder / "vocab.json"), begin_id)
    elif "merges.txt" in files:
        end, lines = "<|endoftext|>", read_text(files["merges.txt"]).splitlines()
        merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
        pairs = byte_pairs(read_json(folder / "vocab.json"), merges)
        pairs.add_special_tokens([end])
        found = Tokenizer(pairs, {"bos": end, "eos": end})
    if found is not None:
        found.files = {name: read_bytes(path) for name, path in files.items()}
    return found


def tokenizer_of_gguf(about: dict) -> Tokenizer:
    """The tokenizer in what a GGUF file says."""
    tokenizers = import_tokenizers()
    said = {name.removeprefix("tokenizer.ggml."): value for name, value in about.items()}
    kind, words = said.get("model"), said.get("pre", "default")
    if kind != "gpt2" or words not in ("smollm", "gpt-2", "default"):
        given = f"{shown(kind)} with {shown(words)}"
        raise ValueError(f"its tokenizer is {given}, supported is 'gpt2' with 'smollm' or 'gpt-2'")
    tokens, merges = said["tokens"], [tuple(merge.split(" ")) for merge in said["merges"]]
    tokenizer = byte_pairs({token: i for i, token in enumerate(tokens)}, merges, digits=words == "smollm")
    control = [token for token, kind in zip(tokens, said["token_type"], strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False, special=True) for token in control])
    special = {name[:3]: said.get(f"{name}_token_id") for name in ("bos", "eos", "padding")}
    before, after = ([said[f"{name}_token_id"]] if said.get(f"add_{name}_token") else [] for name in ("bos", "eos"))
    if before or after:
        form = [*(tokens[id_] for id_ in before), "$A", *(tokens[id_] for id_ in after)]
        around = [(tokens[id_], id_) for id_ in {*before, *after}]
        with _refusing("its tokens around a text have another form"):
            tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=form, special_tokens=around)
    found = Tokenizer(tokenizer, special, about.get("tokenizer.chat_template"))
    config = {f"{name}_token": tokens[id_] for name, id_ in special.items() if id_ is not None}
    config |= {"chat_template": found.chat_template, "tokenizer_class": "PreTrainedTokenizerFast"}
    texts = {"tokenizer.json": tokenizer.to_str(), "tokenizer_config.json": json.dumps(config)}
    found.files = {name: text.encode() for name, text in texts.items()}
    return found


def byte_pairs(vocabulary: dict, merges: list, digits: bool = False) -> Any:
    """GPT-2's tokenizer: byte pairs of the bytes of words; with ``digits``, each digit is a word of its own."""
    tokenizers = import_tokenizers()
    before = [tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if digits:
        before.insert(0, tokenizers.pre_tokenizers.Digits(individual_digits=True))
    with _refusing("its tokens and merges make no tokenizer"):
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(before)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


@contextmanager
def _refusing(what):
    """Turn an error of the library tokenizers into a ValueError; some are a PanicException, which is no Exception."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # such as Ctrl-C
        raise ValueError(f"{what}: {error}") from None


def import_tokenizers() -> Any:
    """The package tokenizers."""
    return imported("tokenizers", "pretrained", "tokenizers of models that exist need")
