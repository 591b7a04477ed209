"""The tokenizer of a model that exists: text to ids and back.

The library tokenizers reads tokenizer.json. What older programs wrote in its place becomes one.
"""

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from npformer.checks import check_flag, shown, warn
from npformer.extras import imported
from npformer.pretrained.files import json_of_file, json_or_empty, read_bytes, text_of_file
from npformer.pretrained.keys import TOKENIZER, check_keys, table, warned_unless
from npformer.pretrained.sentences import OF_ALL, OF_TEXTS, SentenceTexts
from npformer.tokens.subwords import Subwords, import_sentencepiece
from npformer.tokens.tokenizers import CHARACTERS, PIECES, Characters, Pieces

WHOLE, SETTINGS, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
GENERATION = "generation_config.json"
FILES = (
    WHOLE,
    SETTINGS,
    "special_tokens_map.json",
    "added_tokens.json",
    TEMPLATE,
    GENERATION,
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "source.spm",
    "target.spm",
    CHARACTERS,
    PIECES,
    OF_TEXTS,
    OF_ALL,
)
# Those of other kinds of tokenizers, which are not read.
OTHERS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tekken.json")
TEMPLATES = "additional_chat_templates"  # a folder
FORM = "lstrip", "rstrip", "single_word", "normalized"  # how a text has a special token
ROLES = "bos", "eos", "unk", "sep", "pad", "cls", "mask"  # of special tokens
OF_BERT = table("""
    unk   [UNK]
    cls   [CLS]
    sep   [SEP]
    pad   [PAD]
    mask  [MASK]
    """)
OF_ROBERTA = table("""
    bos   <s>
    cls   <s>
    eos   </s>
    sep   </s>
    unk   <unk>
    pad   <pad>
    mask  <mask>
    """)
# Steps of tokenizer.json: words as GPT-2 has them, in its characters for bytes, and back.
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


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
    family : str or None
        The family of the model with which it was loaded.
    """

    def __init__(
        self, tokenizer: Any, special: dict | None = None, chat_template: str | None = None
    ):
        self.tokenizer = tokenizer
        self.chat_template = chat_template
        self.chat_templates: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.sentences = SentenceTexts()
        self.family: str | None = None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        ids = {"unk": self.id_of(getattr(tokenizer.model, "unk_token", None))}
        for role, token in (special or {}).items():
            ids[role] = token if isinstance(token, int) else self.id_of(token)
        self.bos_id = ids.get("bos")
        self.eos_id = ids.get("eos")
        self.pad_id = ids.get("pad")
        self.unk_id = ids["unk"]
        self.eos_ids: tuple[int, ...] = () if self.eos_id is None else (self.eos_id,)

    def __len__(self):
        return self.tokenizer.get_vocab_size()

    def __repr__(self):
        return f"<Tokenizer of {len(self):,} tokens>"

    def id_of(self, token):
        """The id of a token, or None."""
        token = text_of(token)
        return self.tokenizer.token_to_id(token) if isinstance(token, str) else None

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of a text; with ``special`` also of what the model expects around it."""
        if not isinstance(text, str):
            kind = type(text).__name__
            raise TypeError(f"text={shown(text)} is a {kind}, expected a str")
        with _refusing(DIVIDING):
            return self.tokenizer.encode(text, add_special_tokens=special).ids

    def cut(self, text: str, longest: int) -> list[int]:
        """The ids of a text that is cut: with the tokens around it, no more than ``longest``."""
        with _refusing(DIVIDING):
            encoding = self.tokenizer.encode(text, add_special_tokens=False)
            n_around = self.tokenizer.num_special_tokens_to_add(is_pair=False)
            encoding.truncate(max(0, longest - n_around))
            return self.tokenizer.post_process(encoding).ids

    def use_for_vectors(self, sentences: SentenceTexts) -> None:
        """From now on, prepare texts as a folder of sentence-transformers says."""
        self.sentences = sentences
        if not sentences.lower_case:
            return
        normalizers = import_tokenizers().normalizers
        steps = [normalizers.Lowercase()]
        if self.tokenizer.normalizer is not None:
            steps.append(self.tokenizer.normalizer)
        self.tokenizer.normalizer = normalizers.Sequence(steps)

    def decode(self, ids: Any) -> str:
        """The text of ids, without tokens that no text has."""
        ids = [int(id_) for id_ in ids]
        with _refusing("tokenizer.json cannot make a text of these ids"):
            return self.tokenizer.decode(ids)


DIVIDING = "tokenizer.json cannot divide this text"  # whose regular expressions may take too long


class MarianTokenizer:
    """Text to ids and back, by a sentencepiece model for each language and one list of pieces."""

    chat_template = None

    def __init__(self, files: dict[str, bytes], begin_id: int | None):
        kind = import_sentencepiece().SentencePieceProcessor
        with _refusing("source.spm or target.spm is no sentencepiece model"):
            self.source = kind(model_proto=files["source.spm"])
            self.target = kind(model_proto=files["target.spm"])
        self.ids = json_of_file("vocab.json", files["vocab.json"])
        self.pieces = {id_: piece for piece, id_ in self.ids.items()}
        self.files = files
        self.eos_id = self.ids["</s>"]
        self.pad_id = self.ids["<pad>"]
        self.bos_id = begin_id
        self.eos_ids = (self.eos_id,)

    def __len__(self):
        return len(self.ids)

    def encode(self, text):
        """The ids of a text to translate, which may begin with a language, such as ">>fra<<"."""
        language = re.match(">>.+?<<", text)
        pieces = []
        if language:
            pieces.append(language[0])
            text = text[language.end() :]
        pieces += [*self.source.encode(text, out_type=str), "</s>"]
        return [self.ids.get(piece, self.ids["<unk>"]) for piece in pieces]

    def decode(self, ids):
        """The text of ids of a translation."""
        special = {self.eos_id, self.pad_id, self.bos_id}
        words = [int(id_) for id_ in ids if int(id_) not in special]
        return self.target.decode([self.pieces.get(id_, "<unk>") for id_ in words])


def check_tokenizer(tokenizer: Any, model: Any, fits: bool, expected: str) -> None:
    """Raise unless there is a tokenizer and the model fits, whose kind ``expected`` says."""
    if tokenizer is not None and fits:
        return
    kind = type(model).__name__
    beside, advice = "with", ""
    if tokenizer is None:
        beside = "without"
        advice = ": copy tokenizer.json and tokenizer_config.json into its folder"
    what = f"the model is of the kind {kind}, {beside} a tokenizer"
    raise ValueError(f"{what}: expected a tokenizer and {expected}{advice}")


def files_of_tokenizer(folder: Path) -> dict[str, bytes]:
    """The files of a folder of which a tokenizer is made, by their names."""
    files = {name: read_bytes(folder / name) for name in FILES if (folder / name).exists()}
    paths = sorted((folder / TEMPLATES).glob("*.jinja"))
    if paths:  # one file then has all templates
        texts = {path.stem: text_of_file(path.name, read_bytes(path)) for path in paths}
        if TEMPLATE in files:
            texts["default"] = text_of_file(TEMPLATE, files.pop(TEMPLATE))
        about = json_or_empty(files, SETTINGS) | {"chat_template": listed_templates(texts)}
        files[SETTINGS] = json.dumps(about).encode()
    return files


def tokenizer_of(files: dict[str, bytes], config: dict, begin_id: int | None) -> Any:
    """The tokenizer that is made of files, or None if they are of none."""
    if "source.spm" in files and WHOLE not in files:
        return MarianTokenizer(files, begin_id)
    about = about_tokens(files)
    if WHOLE in files:
        inner = tokenizer_in(text_of_file(WHOLE, files[WHOLE]))
    elif "merges.txt" in files:
        inner = tokenizer_in(json.dumps(_pairs_in(files, about, config)))
    elif "vocab.txt" in files:
        inner = tokenizer_in(json.dumps(_word_pieces_in(files, about)))
    elif CHARACTERS in files:
        return Characters(text_of_file(CHARACTERS, files[CHARACTERS]))
    elif PIECES in files:
        return Pieces(Subwords(files[PIECES]))
    else:
        return None
    _add_tokens(inner, about, config.get("vocab_size", 0))
    special = {}
    for role in ROLES:
        token = about.get(f"{role}_token") or first(config.get(f"{role}_token_id"))
        if token is not None:
            special[role] = token
    tokenizer = Tokenizer(inner, special)
    tokenizer.files = files
    tokenizer.chat_templates = templates_in(about.get("chat_template"))
    if TEMPLATE in files:
        tokenizer.chat_templates = {"default": text_of_file(TEMPLATE, files[TEMPLATE])}
    tokenizer.chat_template = tokenizer.chat_templates.get("default")
    check_keys(about, TOKENIZER | warned_unless(_said_by(tokenizer)), SETTINGS)
    return tokenizer


def tokenizer_in(text: str) -> Any:
    """The tokenizer of the library tokenizers that the text of tokenizer.json describes."""
    tokenizers = import_tokenizers()
    with _refusing(f"{WHOLE}, or what is in its place, holds no tokenizer"):
        return tokenizers.Tokenizer.from_str(text)


def warn_of_others(folder: Path) -> None:
    """Warn if a folder has a tokenizer of another kind alone."""
    advice = "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers"
    for name in OTHERS:
        if (folder / name).exists():
            what = f"{name} is not read, so there is no tokenizer"
            warn(f"{what}; npformer reads tokenizer.json: {advice} writes it")


def about_tokens(files: dict[str, bytes]) -> dict:
    """What tokenizer_config.json says, and the files that older programs wrote beside it."""
    about = json_or_empty(files, SETTINGS)
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
    for key in ("additional_special_tokens", "extra_special_tokens"):
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


def _add_tokens(inner, about, n_vectors):
    """Add the tokens that the settings name and the vocabulary lacks, in the order of their ids."""
    added_token = import_tokenizers().AddedToken
    there = {token.content for token in inner.get_added_tokens_decoder().values()}
    tokens = {int(id_): token for id_, token in about.get("added_tokens_decoder", {}).items()}
    new = {id_: token for id_, token in sorted(tokens.items()) if token["content"] not in there}
    with _refusing("tokenizer_config.json describes a token in another form"):
        inner.add_tokens([added_token(**token) for token in new.values()])
    for id_, token in new.items():
        number = inner.token_to_id(token["content"])
        if number != id_:
            what = f"the added token {shown(token['content'])} has the id {id_}"
            raise ValueError(f"{what}, expected {number}, the next of the vocabulary")
    for text, form in special_tokens(about).items():
        has_id = inner.token_to_id(text) is not None
        if text not in there and (has_id or inner.get_vocab_size() < n_vectors):
            inner.add_special_tokens([added_token(text, **form)])


def templates_in(value: Any) -> dict[str, str]:
    """The templates of chats by their names, of a text, or of a list with a dict for each."""
    if isinstance(value, str):
        return {"default": value}
    templates = value or {}
    if isinstance(value, list):
        templates = {each.get("name"): each.get("template") for each in value}
    for name, text in templates.items():
        if not isinstance(text, str):
            what = f"the template of chats {shown(name)} in tokenizer_config.json"
            warn(f"{what} is left out, as it has no text")
    return {name: text for name, text in templates.items() if isinstance(text, str)}


def listed_templates(templates: dict[str, str]) -> list[dict]:
    """What ``templates_in`` reads."""
    return [{"name": name, "template": text} for name, text in templates.items()]


def _said_by(tokenizer):
    """What tokenizer.json says, by the keys with which tokenizer_config.json may contradict it."""
    said = {}
    inner = tokenizer.tokenizer
    for step in [*_steps(inner.normalizer), *_steps(inner.pre_tokenizer)]:
        kind = step.get("type")
        if kind == "BertNormalizer":
            said["do_lower_case"] = step["lowercase"]
            said["strip_accents"] = step["strip_accents"]
            said["tokenize_chinese_chars"] = step["handle_chinese_chars"]
        elif kind == "ByteLevel":
            said["add_prefix_space"] = step["add_prefix_space"]
        elif kind == "Metaspace":
            said["add_prefix_space"] = step["prepend_scheme"] != "never"
    ids = tokenizer.encode("")
    said["add_bos_token"] = tokenizer.bos_id is not None and ids[:1] == [tokenizer.bos_id]
    said["add_eos_token"] = tokenizer.eos_id is not None and ids[-1:] == [tokenizer.eos_id]
    return said


def _steps(part):
    """The steps of a normalizer or pre-tokenizer of the library tokenizers, each as a dict."""
    if part is None:
        return []
    about = json.loads(part.__getstate__())
    for steps in ("normalizers", "pretokenizers"):
        if steps in about:
            return about[steps]
    return [about]


# -- tokenizer.json of what older programs wrote


def _pairs_in(files, about, config):
    """A tokenizer as that of GPT-2 or of RoBERTa, of pairs of bytes."""
    lines = text_of_file("merges.txt", files["merges.txt"]).splitlines()
    merges = [line for line in lines if line and not line.startswith("#version")]
    vocabulary = json_of_file("vocab.json", files["vocab.json"])
    has_space = bool(about.get("add_prefix_space"))
    whole = byte_pairs(vocabulary, merges, BYTES | {"add_prefix_space": has_space})
    if is_roberta(about, config):
        for role, token in OF_ROBERTA.items():
            about.setdefault(f"{role}_token", token)
        if isinstance(about["mask_token"], str):  # which has no space before it in a text
            form = {"lstrip": True, "normalized": False}
            about["mask_token"] = {"content": about["mask_token"], **form}
        whole["post_processor"] = _between(about, vocabulary)
    elif "<|endoftext|>" in vocabulary:  # these are GPT-2's, if no file says another token
        about.setdefault("bos_token", "<|endoftext|>")
        about.setdefault("eos_token", "<|endoftext|>")
    return whole


def is_roberta(about: dict, config: dict) -> bool:
    """Whether vocab.json and merges.txt are of RoBERTa, and not of GPT-2, which has both, too.

    The class of the tokenizer says so, and where no file names it, the family of the model.
    """
    kind = about.get("tokenizer_class") or config.get("model_type")
    return kind in ("RobertaTokenizer", "RobertaTokenizerFast", "roberta")


def _between(about, vocabulary):
    """Each text begins and ends with the tokens that classify and separate."""
    tokens = []
    for key in ("cls_token", "sep_token"):
        token = _text_in(about, key)
        if token not in vocabulary:
            raise ValueError(f"{key}={shown(about[key])}, expected a token of the vocabulary")
        tokens.append(token)
    begin, end = tokens
    return around_text([begin], [end], vocabulary)


def _text_in(about, key):
    """The text of a token that each tokenizer of the kind has."""
    text = text_of(about[key])
    if not isinstance(text, str):
        raise TypeError(f"{key}={shown(about[key])}, expected a text or a dict with its content")
    return text


def _word_pieces_in(files, about):
    """A tokenizer as that of BERT, of pieces of words."""
    pieces = text_of_file("vocab.txt", files["vocab.txt"]).splitlines()
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    for role, token in OF_BERT.items():
        about.setdefault(f"{role}_token", token)
    mark = "##"  # of a piece that goes on with a word
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": about.get("tokenize_chinese_chars", True),
            "strip_accents": about.get("strip_accents"),
            "lowercase": about.get("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece",
            "vocab": vocabulary,
            "unk_token": _text_in(about, "unk_token"),
            "continuing_subword_prefix": mark,
            "max_input_chars_per_word": 100,
        },
        "post_processor": _between(about, vocabulary),
        "decoder": {"type": "WordPiece", "prefix": mark, "cleanup": True},
    }


def byte_pairs(vocabulary: dict[str, int], merges: list, *steps: dict) -> dict:
    """A tokenizer of byte pairs; the steps divide a text into words, as GPT-2 does if not given."""
    return {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps or [BYTES]},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
        "decoder": BYTES,
    }


def around_text(before: list[str], after: list[str], vocabulary: dict[str, int]) -> dict:
    """The step that puts tokens before and after each text."""
    special = {}
    for token in (*before, *after):
        special[token] = {"id": token, "ids": [vocabulary[token]], "tokens": [token]}
    parts = {token: {"SpecialToken": {"id": token, "type_id": 0}} for token in special}
    text, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    single = [*map(parts.get, before), text, *map(parts.get, after)]
    steps = {"single": single, "pair": [*single, other], "special_tokens": special}
    return {"type": "TemplateProcessing"} | steps


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


@contextmanager
def _refusing(what):
    """Turn an error of the library tokenizers into a ValueError."""
    try:
        yield
    except BaseException as error:
        # A PanicException of Rust is no Exception; neither is Ctrl-C.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{what}: {error}") from None


def import_tokenizers() -> Any:
    """The package tokenizers."""
    return imported("tokenizers", "pretrained", "tokenizers of models that exist need")
