"""The tokenizer of a model that exists: text to ids and back."""

from contextlib import contextmanager
from pathlib import Path
from typing import Any

from npformer.checks import shown
from npformer.pretrained.files import LONGEST_JSON, read_json
from npformer.runtime.extras import pip_install

FILES: tuple[str, ...] = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)
FILES += ("vocab.json", "merges.txt", "source.spm", "target.spm")
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
        return self.tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, ids: Any) -> str:
        """The text of ids, without tokens that no text has."""
        return self.tokenizer.decode([int(id_) for id_ in ids])


class MarianTokenizer:
    """Text to ids and back, by sentencepiece, with a model for each language and one list of their pieces."""

    chat_template = None

    def __init__(self, source, target, ids, begin_id):
        from npformer.data.subwords import import_sentencepiece

        kind = import_sentencepiece().SentencePieceProcessor
        self.source, self.target = (kind(model_proto=model) for model in (source, target))
        self.ids, self.pieces, self.files = ids, {id_: piece for piece, id_ in ids.items()}, {}
        self.eos_id, self.pad_id, self.bos_id = ids["</s>"], ids["<pad>"], begin_id

    def __len__(self):
        return len(self.ids)

    def encode(self, text):
        """The ids of a text to translate."""
        unknown = self.ids["<unk>"]
        return [self.ids.get(piece, unknown) for piece in self.source.encode(text, out_type=str)] + [self.eos_id]

    def decode(self, ids):
        """The text of ids of a translation."""
        special = {self.eos_id, self.pad_id, self.bos_id}
        return self.target.decode([self.pieces.get(int(id_), "<unk>") for id_ in ids if int(id_) not in special])


def tokenizer_of(folder: Path, begin_id: int | None) -> Any:
    """The tokenizer in a folder, or None if it has none."""
    found: Any = None
    about = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
    if (folder / "tokenizer.json").exists():
        found = Tokenizer(_from_json(folder / "tokenizer.json"), _special(about), _template(folder, about))
    elif (folder / "source.spm").exists():
        vocabulary, (source, target) = (
            read_json(folder / "vocab.json"),
            (folder / f"{x}.spm" for x in ("source", "target")),
        )
        found = MarianTokenizer(source.read_bytes(), target.read_bytes(), vocabulary, begin_id)
    elif (folder / "merges.txt").exists():
        end = "<|endoftext|>"
        merges = [
            tuple(line.split(" ")) for line in _text(folder / "merges.txt").splitlines() if line[:1] != "#" and line
        ]
        pairs = byte_pairs(read_json(folder / "vocab.json"), merges)
        pairs.add_special_tokens([end])
        found = Tokenizer(pairs, {"bos": end, "eos": end})
    if found is not None:
        found.files = {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}
    return found


def tokenizer_of_gguf(about: dict) -> Tokenizer:
    """The tokenizer in what a GGUF file says."""
    tokenizers = import_tokenizers()
    said = {name.removeprefix("tokenizer.ggml."): value for name, value in about.items()}
    kind, before = said.get("model"), said.get("pre", "default")
    if kind != "gpt2" or before not in ("smollm", "gpt-2", "default"):
        raise ValueError(
            f"its tokenizer is {shown(kind)} with {shown(before)}, supported is 'gpt2' with 'smollm' or 'gpt-2'"
        )
    tokens, merges = said["tokens"], [tuple(merge.split(" ")) for merge in said["merges"]]
    tokenizer = byte_pairs({token: i for i, token in enumerate(tokens)}, merges, digits=before == "smollm")
    control = [token for token, kind in zip(tokens, said["token_type"], strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False, special=True) for token in control])
    special = {
        name: said.get(f"{long}_token_id") for name, long in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    return Tokenizer(tokenizer, special, about.get("tokenizer.chat_template"))


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


def _from_json(path):
    tokenizers, text = import_tokenizers(), _text(path)
    with _refusing(f"{path.name} holds no tokenizer"):
        return tokenizers.Tokenizer.from_str(text)


@contextmanager
def _refusing(what):
    """Turn an error of the library tokenizers into a ValueError; it panics, too, which is no Exception."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ValueError(f"{what}: {error}") from None


def _special(about):
    return {name: about.get(f"{name}_token") for name in ("bos", "eos", "pad")}


def _template(folder, about):
    if (folder / "chat_template.jinja").exists():
        return _text(folder / "chat_template.jinja")
    template = about.get("chat_template")
    return template if isinstance(template, str) else None


def _text(path):
    if path.stat().st_size > LONGEST_JSON:
        raise ValueError(f"{path.name} has {path.stat().st_size:,} bytes, expected at most {LONGEST_JSON:,}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is no text in UTF-8: {error}") from None


def import_tokenizers() -> Any:
    """The package tokenizers."""
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(f"tokenizers of models that exist need tokenizers: {pip_install('pretrained')}") from error
    return tokenizers
