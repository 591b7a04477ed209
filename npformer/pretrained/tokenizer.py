"""The tokenizer of a model that exists: text to ids and back."""

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from npformer.checks import shown, warn
from npformer.data.subwords import import_sentencepiece
from npformer.extras import imported
from npformer.pretrained.files import read_bytes, read_json, read_text
from npformer.pretrained.keys import GGUF, TOKENIZER, check_keys, warned_unless
from npformer.pretrained.sentences import OF_ALL, OF_TEXTS, SentenceTexts

FILES = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
]
FILES += [
    "generation_config.json",
    "vocab.json",
    "merges.txt",
    "source.spm",
    "target.spm",
    "added_tokens.json",
]
FILES += ["vocab.txt", OF_TEXTS, OF_ALL]
OTHERS = [
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
]  # which are not read
TEMPLATES = "additional_chat_templates"  # a folder
ROLES = "bos", "eos", "unk", "sep", "pad", "cls", "mask"  # of special tokens
# Types of tokens of a GGUF file: one that no text has, and one that is never divided.
CONTROL, USER_DEFINED = 3, 4
# How a GGUF file says that text is divided into words: as GPT-2 does, also with digits apart, or
# by these regular expressions, which differ in how many digits are a word.
AS_GPT2 = "smollm", "gpt-2"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = {"qwen2": _WORDS.replace("DIGITS", r"\p{N}")}
WORDS |= dict.fromkeys(["llama-bpe", "llama3", "llama-v3"], _WORDS.replace("DIGITS", r"\p{N}{1,3}"))


class Tokenizer:
    """Text to ids and back, by the library tokenizers.

    Attributes
    ----------
    bos_id, eos_id, pad_id, unk_id : int or None
        The tokens that begin and end a text, the padding, and what stands for text that has no
        token.
    eos_ids : tuple of int
        All tokens that end a text or an answer: ``eos_id``, and those that generation_config.json
        and config.json say.
    chat_template : str or None
        How the turns of a chat become one text, in the language of Jinja: see
        ``npformer.pretrained.chat``.
    chat_templates : dict
        All templates by their names, if there are several; ``chat_template`` is that with the name
        "default".
    files : dict
        The names and bytes of the files from which it was read.
    sentences : SentenceTexts
        What the library sentence-transformers says of texts that become one vector.
    """

    def __init__(self, tokenizer: Any, special: dict | None = None, chat_template: str | None = None):
        self.tokenizer, self.chat_template = tokenizer, chat_template
        self.chat_templates: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.sentences = SentenceTexts()
        tokenizer.no_truncation()
        tokenizer.no_padding()
        ids = {name: token if isinstance(token, int) else self.id_of(token) for name, token in (special or {}).items()}
        self.bos_id, self.eos_id, self.pad_id = (ids.get(name) for name in ("bos", "eos", "pad"))
        self.unk_id = ids.get("unk", self.id_of(getattr(tokenizer.model, "unk_token", None)))
        self.eos_ids: tuple[int, ...] = () if self.eos_id is None else (self.eos_id,)

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

    def cut(self, text: str, longest: int) -> list[int]:
        """The ids of a text, which is cut so that they and the tokens around it are no more than ``longest``."""
        with _refusing("tokenizer.json cannot divide this text"):
            encoding = self.tokenizer.encode(text, add_special_tokens=False)
            encoding.truncate(max(0, longest - self.tokenizer.num_special_tokens_to_add(is_pair=False)))
            return self.tokenizer.post_process(encoding).ids

    def lower_case(self) -> None:
        """From now on, a text becomes lower case first."""
        first = import_tokenizers().normalizers.Lowercase()
        then = self.tokenizer.normalizer
        both = [first] if then is None else [first, then]
        self.tokenizer.normalizer = import_tokenizers().normalizers.Sequence(both)

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
        self.eos_ids = (self.eos_id,)

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
    files = {name: folder / name for name in FILES if (folder / name).exists()}
    if "source.spm" in files and "tokenizer.json" not in files:
        source, target = (read_bytes(folder / f"{side}.spm") for side in ("source", "target"))
        found: Any = MarianTokenizer(source, target, read_json(folder / "vocab.json"), begin_id)
        found.files = {name: read_bytes(path) for name, path in files.items()}
        return found
    about = about_tokens(files)
    if "tokenizer.json" in files:
        text = read_text(files["tokenizer.json"])
        with _refusing("tokenizer.json holds no tokenizer"):
            tokenizer = import_tokenizers().Tokenizer.from_str(text)
    elif "merges.txt" in files:
        tokenizer = _pairs_in(files, about)
    elif "vocab.txt" in files:
        tokenizer = _word_pieces_in(files, about)
    else:
        for name in OTHERS:
            if (folder / name).exists():
                advice = "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers writes it"
                warn(f"{name} is not read, so there is no tokenizer; npformer reads tokenizer.json: {advice}")
        return None
    _add_tokens(tokenizer, about, config.get("vocab_size", 0))
    special = {role: about.get(f"{role}_token") or first(config.get(f"{role}_token_id")) for role in ROLES}
    found = Tokenizer(tokenizer, {role: token for role, token in special.items() if token is not None})
    found.files = {name: read_bytes(path) for name, path in files.items()}
    _add_templates(found, folder, about)
    check_keys(about, TOKENIZER | warned_unless(_said_by(found)), "tokenizer_config.json")
    return found


def about_tokens(files: dict[str, Path]) -> dict:
    """What tokenizer_config.json says, and the files that older versions of transformers wrote beside it."""
    about = read_json(files["tokenizer_config.json"]) if "tokenizer_config.json" in files else {}
    if "added_tokens_decoder" in about:  # then the others are not read there, either
        return about
    if "special_tokens_map.json" in files:
        about = about | read_json(files["special_tokens_map.json"])
    if "added_tokens.json" in files:
        special = {*special_tokens(about)}
        tokens = {
            id_: {"content": token, "normalized": token not in special, "special": token in special}
            for token, id_ in read_json(files["added_tokens.json"]).items()
        }
        about = about | {"added_tokens_decoder": tokens}
    return about


def special_tokens(about: dict) -> list[str]:
    """The texts of all tokens that have a meaning of their own."""
    tokens = [about.get(f"{role}_token") for role in ROLES]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        if isinstance(about.get(key), list):
            tokens.extend(about[key])
    texts = [token.get("content") if isinstance(token, dict) else token for token in tokens]
    return [text for text in texts if isinstance(text, str) and text]


def _add_tokens(tokenizer, about, n_vectors):
    """Add tokens that are in no text, or that were added later: all that the settings name, in the order of ids."""
    added_token = import_tokenizers().AddedToken
    there = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    tokens = {int(id_): token for id_, token in about.get("added_tokens_decoder", {}).items()}
    new = {id_: token for id_, token in sorted(tokens.items()) if token["content"] not in there}
    with _refusing("tokenizer_config.json describes a token in another form"):
        tokenizer.add_tokens([added_token(**token) for token in new.values()])
    for id_, token in new.items():
        number = tokenizer.token_to_id(token["content"])
        if number != id_:
            expected = f"expected {number}, the next of the vocabulary"
            raise ValueError(f"the added token {shown(token['content'])} has the id {id_}, {expected}")
    for text in special_tokens(about):
        is_new = tokenizer.token_to_id(text) is None
        if text not in there and (not is_new or tokenizer.get_vocab_size() < n_vectors):
            tokenizer.add_special_tokens([text])


def _add_templates(found, folder, about):
    """Add the templates of chats: in their own files, or else as tokenizer_config.json has them."""
    there = about.get("chat_template")
    if isinstance(there, list):
        there = {template["name"]: template["template"] for template in there}
    templates = {"default": there} if isinstance(there, str) else dict(there or {})
    files = {path.stem: path for path in sorted((folder / TEMPLATES).glob("*.jinja"))}
    if "chat_template.jinja" in found.files:
        files["default"] = folder / "chat_template.jinja"
    if files:
        templates = {name: read_text(path) for name, path in files.items()}
    found.chat_template, found.chat_templates = templates.get("default"), templates
    if len(files) > 1 or files and "default" not in files:  # in another folder, they are saved in one file
        listed = [{"name": name, "template": text} for name, text in templates.items()]
        found.files["tokenizer_config.json"] = json.dumps(about | {"chat_template": listed}).encode()
        found.files.pop("chat_template.jinja", None)


def _said_by(found):
    """What tokenizer.json says where tokenizer_config.json may say something else, by the keys there."""
    said = {}
    for name in ("normalizer", "pre_tokenizer"):
        part = getattr(found.tokenizer, name)
        about = json.loads(part.__getstate__()) if part else {}
        for step in about.get("normalizers", about.get("pretokenizers", [about])):
            if step.get("type") == "BertNormalizer":
                said["do_lower_case"] = step["lowercase"]
                said["strip_accents"] = step["strip_accents"]
                said["tokenize_chinese_chars"] = step["handle_chinese_chars"]
            if step.get("type") == "ByteLevel":
                said["add_prefix_space"] = step["add_prefix_space"]
    ids = found.encode("")
    said["add_bos_token"] = found.bos_id is not None and ids[:1] == [found.bos_id]
    said["add_eos_token"] = found.eos_id is not None and ids[-1:] == [found.eos_id]
    return said


def _pairs_in(files, about):
    """A tokenizer as that of GPT-2, of pairs of bytes."""
    lines = read_text(files["merges.txt"]).splitlines()
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    vocabulary = read_json(files["vocab.json"])
    if "<|endoftext|>" in vocabulary:  # these are GPT-2's, if no file says another token
        for role in ("bos", "eos"):
            about.setdefault(f"{role}_token", "<|endoftext|>")
    return byte_pairs(vocabulary, merges, begins_with_space=bool(about.get("add_prefix_space")))


def _word_pieces_in(files, about):
    """A tokenizer as that of BERT, of pieces of words."""
    tokenizers = import_tokenizers()
    pieces = read_text(files["vocab.txt"]).splitlines()
    for role, token in {
        "unk": "[UNK]",
        "cls": "[CLS]",
        "sep": "[SEP]",
        "pad": "[PAD]",
        "mask": "[MASK]",
    }.items():
        about.setdefault(f"{role}_token", token)
    unknown, begin, end = (about[f"{role}_token"] for role in ("unk", "cls", "sep"))
    ids = {piece: i for i, piece in enumerate(pieces)}
    with _refusing("vocab.txt makes no tokenizer"):
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token=unknown))
        around = [(begin, ids[begin]), (end, ids[end])]
        form = f"{begin} $A {end}"
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=form, special_tokens=around)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=about.get("do_lower_case", True),
        strip_accents=about.get("strip_accents"),
        handle_chinese_chars=about.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    return tokenizer


def first(ids: Any) -> Any:
    """The first of several ids, or the only one."""
    return ids[0] if isinstance(ids, list) and ids else ids


def ends_in(*files: dict) -> list[int]:
    """The ids that end a text, as files say with one number or with a list."""
    ends: list = []
    for about in files:
        ids = about.get("eos_token_id")
        ends.extend(ids if isinstance(ids, list) else [ids])
    return [id_ for id_ in ends if isinstance(id_, int)]


def tokenizer_of_gguf(about: dict) -> Tokenizer:
    """The tokenizer in what a GGUF file says."""
    tokenizers = import_tokenizers()
    check_keys(
        {name: x for name, x in about.items() if name.startswith("tokenizer.")},
        GGUF,
        "the GGUF file",
    )
    said = {name.removeprefix("tokenizer.ggml."): value for name, value in about.items()}
    kind, words = said.get("model"), said.get("pre", "default")
    if kind != "gpt2" or words not in (*AS_GPT2, *WORDS, "default"):
        given = f"tokenizer.ggml.model={shown(kind)} with tokenizer.ggml.pre={shown(words)}"
        supported = " or ".join(map(repr, (*AS_GPT2, *WORDS)))
        raise ValueError(f"it has {given}, supported is 'gpt2' with {supported}")
    if words == "default":
        how = "it does not say how text is divided into words (tokenizer.ggml.pre)"
        warn(f"{how}: divided as GPT-2 does, which may give other tokens. A newer llama.cpp converts it again")
    tokens, merges = said["tokens"], [tuple(merge.split(" ")) for merge in said["merges"]]
    tokenizer = byte_pairs({token: i for i, token in enumerate(tokens)}, merges, digits=words == "smollm")
    if words in WORDS:
        divide_by(tokenizer, words)
    types = said["token_type"]
    whole = [
        tokenizers.AddedToken(token, normalized=False, special=of_type == CONTROL)
        for token, of_type in zip(tokens, types, strict=True)
        if of_type in (CONTROL, USER_DEFINED)
    ]
    tokenizer.add_tokens(whole)
    special = {name[:3]: said.get(f"{name}_token_id") for name in ("bos", "eos", "padding", "unknown")}
    before, after = ([said[f"{name}_token_id"]] if said.get(f"add_{name}_token") else [] for name in ("bos", "eos"))
    if before or after:
        form = [*(tokens[id_] for id_ in before), "$A", *(tokens[id_] for id_ in after)]
        around = [(tokens[id_], id_) for id_ in {*before, *after}]
        with _refusing("its tokens around a text have another form"):
            tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=form, special_tokens=around)
    found = Tokenizer(tokenizer, special, about.get("tokenizer.chat_template"))
    beginning = "tokenizer.chat_template."
    found.chat_templates = {
        name.removeprefix(beginning): text for name, text in about.items() if name.startswith(beginning)
    }
    ends = [said.get(f"{name}_token_id") for name in ("eos", "eot", "eom")]
    found.eos_ids = tuple(dict.fromkeys(id_ for id_ in ends if isinstance(id_, int)))
    config = {f"{name}_token": tokens[id_] for name, id_ in special.items() if id_ is not None}
    config |= {"chat_template": found.chat_template, "tokenizer_class": "PreTrainedTokenizerFast"}
    if found.chat_templates:
        templates = {"default": found.chat_template} | found.chat_templates
        config["chat_template"] = [{"name": name, "template": text} for name, text in templates.items() if text]
    texts = {"tokenizer.json": tokenizer.to_str(), "tokenizer_config.json": json.dumps(config)}
    if len(found.eos_ids) > 1:
        texts["generation_config.json"] = json.dumps({"eos_token_id": list(found.eos_ids)})
    found.files = {name: text.encode() for name, text in texts.items()}
    return found


def byte_pairs(vocabulary: dict, merges: list, digits: bool = False, begins_with_space: bool = False) -> Any:
    """GPT-2's tokenizer: byte pairs of the bytes of words; with ``digits``, each digit is a word of its own."""
    tokenizers = import_tokenizers()
    before = [tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=begins_with_space)]
    if digits:
        before.insert(0, tokenizers.pre_tokenizers.Digits(individual_digits=True))
    with _refusing("its tokens and merges make no tokenizer"):
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(before)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def divide_by(tokenizer: Any, words: str) -> None:
    """Divide text into words as Qwen2 or Llama 3 does, which take words that are tokens as a whole."""
    tokenizers = import_tokenizers()
    division = tokenizers.Regex(WORDS[words])
    before = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = before.Sequence(
        [before.Split(division, "isolated"), before.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    if words == "qwen2":
        tokenizer.normalizer = tokenizers.normalizers.NFC()
    else:
        tokenizer.model.ignore_merges = True


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
