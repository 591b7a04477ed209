"""The tokenizer of a model that exists: text to ids and back.

The library tokenizers reads tokenizer.json. What older programs wrote in its place becomes one.
"""

import json
import re
from typing import Any

from npformer.checks import shown
from npformer.errors import UserError
from npformer.models.encoder import Encoder
from npformer.pretrained.families.family import Family
from npformer.pretrained.files import Files, ends_in, json_in, json_or_empty, text_in
from npformer.pretrained.keys import TOKENIZER_KEYS
from npformer.pretrained.library_tokenizers import (
    as_user_error,
    import_tokenizers,
    tokenizer_in,
    tokenizer_of_older,
)
from npformer.pretrained.rules import check_keys, warned_unless
from npformer.pretrained.sentences import SentenceTexts, sentence_texts
from npformer.pretrained.tokenizer_settings import (
    GENERATION_FILE,
    ROLES,
    SETTINGS_FILE,
    TEMPLATE_FILE,
    TOKENIZER_FILE,
    about_tokens,
    special_tokens,
    templates_in,
    text_of,
)
from npformer.tokens.subwords import Subwords, import_sentencepiece
from npformer.tokens.tokenizers import CHARACTERS, PIECES, Characters, Pieces, Tokens

DIVIDING = "tokenizer.json cannot divide this text"  # whose regular expressions may take too long
NO_SENTENCES = SentenceTexts()  # what a folder says that has no files of sentence-transformers


class Tokenizer(Tokens):
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
        self,
        tokenizer,
        files: Files,
        ids: dict[str, int | None],
        eos_ids: tuple[int, ...],
        chat_templates: dict[str, str],
        sentences: SentenceTexts = NO_SENTENCES,
    ):
        self.tokenizer = tokenizer
        self.files = files
        self.chat_templates = chat_templates
        self.chat_template = chat_templates.get("default")
        self.sentences = sentences
        self.bos_id = ids.get("bos")
        self.eos_id = ids.get("eos")
        self.pad_id = ids.get("pad")
        self.unk_id = ids.get("unk")
        self.eos_ids = eos_ids

    def __len__(self):
        return self.tokenizer.get_vocab_size()

    def __repr__(self):
        return f"<Tokenizer of {len(self):,} tokens>"

    def id_of(self, token):
        """The id of a token, or None."""
        return id_in(self.tokenizer, token)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of a text; with ``special`` also of what the model expects around it."""
        if not isinstance(text, str):
            raise TypeError(f"text={shown(text)} is a {type(text).__name__}, expected a str")
        with as_user_error(DIVIDING):
            return self.tokenizer.encode(text, add_special_tokens=special).ids

    def cut(self, text: str, longest: int) -> list[int]:
        """The ids of a text that is cut: with the tokens around it, no more than ``longest``."""
        with as_user_error(DIVIDING):
            encoding = self.tokenizer.encode(text, add_special_tokens=False)
            n_around = self.tokenizer.num_special_tokens_to_add(is_pair=False)
            encoding.truncate(max(0, longest - n_around))
            return self.tokenizer.post_process(encoding).ids

    def decode(self, ids: Any) -> str:
        """The text of ids, without tokens that no text has."""
        ids = [int(id_) for id_ in ids]
        with as_user_error("tokenizer.json cannot make a text of these ids"):
            return self.tokenizer.decode(ids)


class MarianTokenizer(Tokens):
    """Text to ids and back, by a sentencepiece model for each language and one list of pieces."""

    def __init__(self, files: Files, begin_id: int | None):
        kind = import_sentencepiece().SentencePieceProcessor
        with as_user_error("source.spm or target.spm is no sentencepiece model"):
            self.source = kind(model_proto=files["source.spm"])
            self.target = kind(model_proto=files["target.spm"])
        self.ids = json_in(files, "vocab.json")
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


def check_tokenizer(tokenizer, model, fits: bool, expected: str) -> None:
    """Raise unless there is a tokenizer and the model fits, whose kind ``expected`` says."""
    if tokenizer is not None and fits:
        return
    beside = "with"
    advice = ""
    if tokenizer is None:
        beside = "without"
        advice = ": copy tokenizer.json and tokenizer_config.json into its folder"
    raise UserError(
        f"the model is of the kind {type(model).__name__}, {beside} a tokenizer: "
        f"expected a tokenizer and {expected}{advice}"
    )


def tokenizer_of(files: Files, config: dict, family: Family):
    """The tokenizer that is made of files, for a model of a family, or None if they are of none.

    Where texts may become one vector, they are prepared as sentence-transformers does.
    """
    if "source.spm" in files and TOKENIZER_FILE not in files:
        return MarianTokenizer(files, family.begin_id(config))
    about = about_tokens(files)
    if TOKENIZER_FILE in files:
        inner = tokenizer_in(text_in(files, TOKENIZER_FILE))
    elif "merges.txt" in files or "vocab.txt" in files:
        inner, about = tokenizer_of_older(files, about, config)
    elif CHARACTERS in files:
        return Characters(text_in(files, CHARACTERS))
    elif PIECES in files:
        return Pieces(Subwords(files[PIECES]))
    else:
        return None
    _add_tokens(inner, about, config.get("vocab_size", 0))
    templates = about.get("chat_template")
    if TEMPLATE_FILE in files:
        templates = text_in(files, TEMPLATE_FILE)
    chat_templates = templates_in(templates)
    ids = _ids_by_role(inner, about, config)
    check_keys(about, TOKENIZER_KEYS | warned_unless(_said_by(inner, ids)), SETTINGS_FILE)
    eos_ids = _all_ends(ids.get("eos"), files, config)
    sentences = NO_SENTENCES
    if family.model is Encoder:
        sentences = sentence_texts(files)
    if sentences.lower_case:
        inner.normalizer = _after_lower_case(inner.normalizer)
    return Tokenizer(inner, files, ids, eos_ids, chat_templates, sentences)


def _ids_by_role(inner, about, config):
    """The ids of special tokens by their roles; the first, where config.json has several of one."""
    ids = {"unk": id_in(inner, getattr(inner.model, "unk_token", None))}
    for role in ROLES:
        token = about.get(f"{role}_token")
        if not token:
            token = config.get(f"{role}_token_id")
            if isinstance(token, list) and token:
                token = token[0]
        if isinstance(token, int):
            ids[role] = token
        elif token is not None:
            ids[role] = id_in(inner, token)
    return ids


def id_in(inner, token) -> int | None:
    """The id of a token in a tokenizer of the library tokenizers, or None."""
    text = text_of(token)
    return inner.token_to_id(text) if isinstance(text, str) else None


def _all_ends(eos_id, files, config):
    """The tokens that end a text, each once, without those that the model does not know."""
    size = config.get("vocab_size")
    ends = [] if eos_id is None else [eos_id]
    ends += ends_in(json_or_empty(files, GENERATION_FILE), config)
    return tuple(id_ for id_ in dict.fromkeys(ends) if not isinstance(size, int) or id_ < size)


def _after_lower_case(normalizer):
    """A normalizer that reads texts in lower case."""
    normalizers = import_tokenizers().normalizers
    steps = [normalizers.Lowercase()]
    if normalizer is not None:
        steps.append(normalizer)
    return normalizers.Sequence(steps)


def _add_tokens(inner, about, n_vectors):
    """Add the tokens that the settings name and the vocabulary lacks, in the order of their ids."""
    added_token = import_tokenizers().AddedToken
    there = {token.content for token in inner.get_added_tokens_decoder().values()}
    tokens = {int(id_): token for id_, token in about.get("added_tokens_decoder", {}).items()}
    new = {id_: token for id_, token in sorted(tokens.items()) if token["content"] not in there}
    with as_user_error("tokenizer_config.json describes a token in another form"):
        inner.add_tokens([added_token(**token) for token in new.values()])
    for id_, token in new.items():
        number = inner.token_to_id(token["content"])
        if number != id_:
            raise UserError(
                f"the added token {shown(token['content'])} has the id {id_}, "
                f"expected {number}, the next of the vocabulary"
            )
    for text, form in special_tokens(about).items():
        has_id = inner.token_to_id(text) is not None
        if text not in there and (has_id or inner.get_vocab_size() < n_vectors):
            inner.add_special_tokens([added_token(text, **form)])


def _said_by(inner, ids):
    """What tokenizer.json says, by the keys with which tokenizer_config.json may contradict it."""
    said = {}
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
    with as_user_error(DIVIDING):
        around = inner.encode("").ids
    bos_id = ids.get("bos")
    eos_id = ids.get("eos")
    said["add_bos_token"] = bos_id is not None and around[:1] == [bos_id]
    said["add_eos_token"] = eos_id is not None and around[-1:] == [eos_id]
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
