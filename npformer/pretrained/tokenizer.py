"""The tokenizer of a model that exists: text to ids and back."""

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from npformer.checks import check_flag, shown, warn
from npformer.extras import imported
from npformer.pretrained.files import read_bytes, read_json, read_text
from npformer.pretrained.keys import GGUF, TOKENIZER, check_keys, table, warned_unless
from npformer.pretrained.sentences import OF_ALL, OF_TEXTS, SentenceTexts
from npformer.tokens.subwords import Subwords, import_sentencepiece
from npformer.tokens.tokenizers import CHARACTERS, PIECES, Characters, Pieces

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
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
OF_GGUF = table("""
    bos  bos
    eos  eos
    pad  padding
    unk  unknown
    """)
# Types of tokens of a GGUF file: one that no text has, and one that is never divided.
CONTROL, USER_DEFINED = 3, 4
# How a GGUF file says that text is divided into words: as GPT-2 does, also with digits apart, or
# by these regular expressions, which differ in how many digits are a word.
AS_GPT2 = "smollm", "gpt-2"
BEFORE_DIGITS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
AFTER_DIGITS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
OF_LLAMA3 = rf"{BEFORE_DIGITS}\p{{N}}{{1,3}}{AFTER_DIGITS}"
WORDS = {
    "qwen2": rf"{BEFORE_DIGITS}\p{{N}}{AFTER_DIGITS}",
    "llama-bpe": OF_LLAMA3,
    "llama3": OF_LLAMA3,
    "llama-v3": OF_LLAMA3,
}


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

    def lower_case(self) -> None:
        """From now on, a text becomes lower case first."""
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

    def __init__(self, source, target, ids, begin_id):
        kind = import_sentencepiece().SentencePieceProcessor
        with _refusing("source.spm or target.spm is no sentencepiece model"):
            self.source = kind(model_proto=source)
            self.target = kind(model_proto=target)
        self.ids = ids
        self.pieces = {id_: piece for piece, id_ in ids.items()}
        self.files: dict[str, bytes] = {}
        self.eos_id = ids["</s>"]
        self.pad_id = ids["<pad>"]
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


def tokenizer_of(folder: Path, config: dict, begin_id: int | None) -> Any:
    """The tokenizer in a folder, or None if it has none."""
    paths = {name: folder / name for name in FILES if (folder / name).exists()}
    if "source.spm" in paths and "tokenizer.json" not in paths:
        return _of_marian(folder, paths, begin_id)
    about = about_tokens(paths)
    if "tokenizer.json" in paths:
        text = read_text(paths["tokenizer.json"])
        tokenizers = import_tokenizers()
        with _refusing("tokenizer.json holds no tokenizer"):
            inner = tokenizers.Tokenizer.from_str(text)
    elif "merges.txt" in paths:
        inner = _pairs_in(paths, about, config)
    elif "vocab.txt" in paths:
        inner = _word_pieces_in(paths, about)
    else:
        return _of_npformer(folder, paths)
    _add_tokens(inner, about, config.get("vocab_size", 0))
    special = {}
    for role in ROLES:
        token = about.get(f"{role}_token") or first(config.get(f"{role}_token_id"))
        if token is not None:
            special[role] = token
    tokenizer = Tokenizer(inner, special)
    tokenizer.files = {name: read_bytes(path) for name, path in paths.items()}
    _add_templates(tokenizer, folder, about)
    check_keys(about, TOKENIZER | warned_unless(_said_by(tokenizer)), "tokenizer_config.json")
    return tokenizer


def _of_marian(folder, paths, begin_id):
    """The tokenizer of a folder with a sentencepiece model for each language."""
    source = read_bytes(folder / "source.spm")
    target = read_bytes(folder / "target.spm")
    ids = read_json(folder / "vocab.json")
    tokenizer = MarianTokenizer(source, target, ids, begin_id)
    tokenizer.files = {name: read_bytes(path) for name, path in paths.items()}
    return tokenizer


def _of_npformer(folder, paths):
    """The characters or pieces of a folder; None if there is no tokenizer that is read."""
    if CHARACTERS in paths:
        return Characters(read_text(paths[CHARACTERS]))
    if PIECES in paths:
        return Pieces(Subwords(read_bytes(paths[PIECES])))
    advice = "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers"
    for name in OTHERS:
        if (folder / name).exists():
            what = f"{name} is not read, so there is no tokenizer"
            warn(f"{what}; npformer reads tokenizer.json: {advice} writes it")
    return None


def about_tokens(paths: dict[str, Path]) -> dict:
    """What tokenizer_config.json says, and the files that older programs wrote beside it."""
    about = {}
    if "tokenizer_config.json" in paths:
        about = read_json(paths["tokenizer_config.json"])
    if "added_tokens_decoder" in about:  # then the others are not read there, either
        return about
    if "special_tokens_map.json" in paths:
        about |= read_json(paths["special_tokens_map.json"])
    if "added_tokens.json" in paths:
        special = special_tokens(about)
        tokens = {}
        for token, id_ in read_json(paths["added_tokens.json"]).items():
            is_special = token in special
            tokens[id_] = {"content": token, "normalized": not is_special, "special": is_special}
        about["added_tokens_decoder"] = tokens
    return about


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


def _add_templates(tokenizer, folder, about):
    """Add the templates of chats: of their own files, or else of tokenizer_config.json."""
    templates = templates_in(about.get("chat_template"))
    paths = {path.stem: path for path in sorted((folder / TEMPLATES).glob("*.jinja"))}
    if "chat_template.jinja" in tokenizer.files:
        paths["default"] = folder / "chat_template.jinja"
    if paths:
        templates = {name: read_text(path) for name, path in paths.items()}
    tokenizer.chat_templates = templates
    tokenizer.chat_template = templates.get("default")
    if paths.keys() - {"default"}:  # in another folder, they are saved in one file
        about = about | {"chat_template": listed_templates(templates)}
        tokenizer.files["tokenizer_config.json"] = json.dumps(about).encode()
        tokenizer.files.pop("chat_template.jinja", None)


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


def _pairs_in(paths, about, config):
    """A tokenizer as that of GPT-2 or of RoBERTa, of pairs of bytes."""
    lines = read_text(paths["merges.txt"]).splitlines()
    merges = [line for line in lines if line and not line.startswith("#version")]
    vocabulary = read_json(paths["vocab.json"])
    has_space = bool(about.get("add_prefix_space"))
    inner = byte_pairs(vocabulary, as_pairs(merges), begins_with_space=has_space)
    if is_roberta(about, config):
        for role, token in OF_ROBERTA.items():
            about.setdefault(f"{role}_token", token)
        if isinstance(about["mask_token"], str):  # which has no space before it in a text
            form = {"lstrip": True, "normalized": False}
            about["mask_token"] = {"content": about["mask_token"], **form}
        _put_between(inner, about)
    elif "<|endoftext|>" in vocabulary:  # these are GPT-2's, if no file says another token
        about.setdefault("bos_token", "<|endoftext|>")
        about.setdefault("eos_token", "<|endoftext|>")
    return inner


def is_roberta(about: dict, config: dict) -> bool:
    """Whether vocab.json and merges.txt are of RoBERTa, and not of GPT-2, which has both, too.

    The class of the tokenizer says so, and where no file names it, the family of the model.
    """
    kind = about.get("tokenizer_class") or config.get("model_type")
    return kind in ("RobertaTokenizer", "RobertaTokenizerFast", "roberta")


def _put_between(inner, about):
    """Let each text begin and end with the tokens that classify and separate."""
    around = []
    for key in ("cls_token", "sep_token"):
        token = _text_in(about, key)
        id_ = inner.token_to_id(token)
        if id_ is None:
            raise ValueError(f"{key}={shown(about[key])}, expected a token of the vocabulary")
        around.append((token, id_))
    (begin, _), (end, _) = around
    with _refusing(f"{begin} and {end} cannot be around a text"):
        inner.post_processor = import_tokenizers().processors.TemplateProcessing(
            single=f"{begin} $A {end}", special_tokens=around
        )


def _text_in(about, key):
    """The text of a token that each tokenizer of the kind has."""
    text = text_of(about[key])
    if not isinstance(text, str):
        raise TypeError(f"{key}={shown(about[key])}, expected a text or a dict with its content")
    return text


def _word_pieces_in(paths, about):
    """A tokenizer as that of BERT, of pieces of words."""
    tokenizers = import_tokenizers()
    pieces = read_text(paths["vocab.txt"]).splitlines()
    for role, token in OF_BERT.items():
        about.setdefault(f"{role}_token", token)
    ids = {piece: i for i, piece in enumerate(pieces)}
    unknown = _text_in(about, "unk_token")
    with _refusing("vocab.txt makes no tokenizer"):
        model = tokenizers.models.WordPiece(ids, unk_token=unknown)
        inner = tokenizers.Tokenizer(model)
    _put_between(inner, about)
    inner.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=about.get("do_lower_case", True),
        strip_accents=about.get("strip_accents"),
        handle_chinese_chars=about.get("tokenize_chinese_chars", True),
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.decoder = tokenizers.decoders.WordPiece()
    return inner


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
    of_tokenizer = {key: x for key, x in about.items() if key.startswith("tokenizer.")}
    check_keys(of_tokenizer, GGUF, "the GGUF file")
    said = {key.removeprefix("tokenizer.ggml."): value for key, value in about.items()}
    inner = _pairs_of_gguf(said)
    special = {role: said.get(f"{name}_token_id") for role, name in OF_GGUF.items()}
    tokenizer = Tokenizer(inner, special, about.get("tokenizer.chat_template"))
    for key, text in about.items():
        if key.startswith("tokenizer.chat_template."):
            tokenizer.chat_templates[key.removeprefix("tokenizer.chat_template.")] = text
    ends = [said.get(f"{name}_token_id") for name in ("eos", "eot", "eom")]
    tokenizer.eos_ids = tuple(dict.fromkeys(id_ for id_ in ends if isinstance(id_, int)))
    roles = {role: said["tokens"][id_] for role, id_ in special.items() if id_ is not None}
    tokenizer.files = _files_of_gguf(tokenizer, roles)
    return tokenizer


def _files_of_gguf(tokenizer, roles):
    """What the tokenizer of a GGUF file has in a folder; ``roles`` are its special tokens."""
    default = tokenizer.chat_template
    config = {f"{role}_token": token for role, token in roles.items()}
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config["chat_template"] = default
    if tokenizer.chat_templates:
        templates = {"default": default} if default else {}
        config["chat_template"] = listed_templates(templates | tokenizer.chat_templates)
    whole = tokenizer.tokenizer.to_str()
    texts = {"tokenizer.json": whole, "tokenizer_config.json": json.dumps(config)}
    if len(tokenizer.eos_ids) > 1:
        ends = {"eos_token_id": list(tokenizer.eos_ids)}
        texts["generation_config.json"] = json.dumps(ends)
    return {name: text.encode() for name, text in texts.items()}


def _pairs_of_gguf(said):
    """A tokenizer of pairs of bytes, by the keys of a GGUF file without their beginnings."""
    model = said.get("model")
    words = said.get("pre", "default")
    if model != "gpt2" or words not in (*AS_GPT2, *WORDS, "default"):
        given = f"tokenizer.ggml.model={shown(model)} with tokenizer.ggml.pre={shown(words)}"
        supported = " or ".join(map(repr, (*AS_GPT2, *WORDS)))
        raise ValueError(f"it has {given}, supported is 'gpt2' with {supported}")
    if words == "default":
        what = "it does not say how text is divided into words (tokenizer.ggml.pre)"
        how = "divided as GPT-2 does, which may give other tokens"
        warn(f"{what}: {how}. A newer llama.cpp converts it again")
    vocabulary = {token: i for i, token in enumerate(said["tokens"])}
    inner = byte_pairs(vocabulary, as_pairs(said["merges"]), digits=words == "smollm")
    if words in WORDS:
        divide_by(inner, words)
    inner.add_tokens(_whole_tokens(said))
    _put_around(inner, said, vocabulary)
    return inner


def _whole_tokens(said):
    """The tokens of a GGUF file that are never divided."""
    added_token = import_tokenizers().AddedToken
    whole = []
    for token, kind in zip(said["tokens"], said["token_type"], strict=True):
        if kind in (CONTROL, USER_DEFINED):
            is_special = kind == CONTROL
            whole.append(added_token(token, normalized=False, special=is_special))
    return whole


def _put_around(inner, said, vocabulary):
    """Let each text have the tokens at its beginning and its end that a GGUF file names."""
    form = ["$A"]  # the text
    if said.get("add_bos_token"):
        form.insert(0, said["tokens"][said["bos_token_id"]])
    if said.get("add_eos_token"):
        form.append(said["tokens"][said["eos_token_id"]])
    around = [(token, vocabulary[token]) for token in {*form} - {"$A"}]
    if around:
        with _refusing("its tokens around a text have another form"):
            inner.post_processor = import_tokenizers().processors.TemplateProcessing(
                single=form, special_tokens=around
            )


def as_pairs(lines: list[str]) -> list[tuple]:
    """The pairs that become one token, of lines with two tokens each."""
    return [tuple(line.split(" ")) for line in lines]


def byte_pairs(
    vocabulary: dict, merges: list, digits: bool = False, begins_with_space: bool = False
) -> Any:
    """GPT-2's tokenizer: byte pairs of the bytes of words; with ``digits``, each is a word."""
    tokenizers = import_tokenizers()
    before = [tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=begins_with_space)]
    if digits:
        before.insert(0, tokenizers.pre_tokenizers.Digits(individual_digits=True))
    with _refusing("its tokens and merges make no tokenizer"):
        inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(before)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return inner


def divide_by(inner: Any, words: str) -> None:
    """Divide text into words as Qwen2 or Llama 3 does, which keep a word that is a token."""
    tokenizers = import_tokenizers()
    before = tokenizers.pre_tokenizers
    inner.pre_tokenizer = before.Sequence(
        [
            before.Split(tokenizers.Regex(WORDS[words]), "isolated"),
            before.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    if words == "qwen2":
        inner.normalizer = tokenizers.normalizers.NFC()
    else:
        inner.model.ignore_merges = True


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
