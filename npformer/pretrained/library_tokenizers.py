"""Tokenizers of the library tokenizers: of tokenizer.json, or of what stands in its place."""

from contextlib import contextmanager
from typing import Any

from npformer.checks import check_int, shown
from npformer.errors import UserError
from npformer.extras import imported
from npformer.pretrained.files import Files, json_in, text_in
from npformer.pretrained.rules import parse_table
from npformer.pretrained.tokenizer_settings import TOKENIZER_FILE, text_of

# The special tokens of three kinds of tokenizers, where no file names others.
GPT2_TOKENS = parse_table("""
    bos_token  <|endoftext|>
    eos_token  <|endoftext|>
    """)
BERT_TOKENS = parse_table("""
    unk_token   [UNK]
    cls_token   [CLS]
    sep_token   [SEP]
    pad_token   [PAD]
    mask_token  [MASK]
    """)
ROBERTA_TOKENS = parse_table("""
    bos_token   <s>
    cls_token   <s>
    eos_token   </s>
    sep_token   </s>
    unk_token   <unk>
    pad_token   <pad>
    mask_token  <mask>
    """)
NO_TOKENIZER = f"{TOKENIZER_FILE}, or what is in its place, holds no tokenizer"


def import_tokenizers() -> Any:
    """The package tokenizers."""
    return imported("tokenizers", "pretrained", "tokenizers of models that exist need")


@contextmanager
def as_user_error(what):
    """Turn an error of the library tokenizers into a UserError."""
    try:
        yield
    except BaseException as error:
        # A PanicException of Rust is no Exception; neither is Ctrl-C.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{what}: {error}") from None


def tokenizer_in(text: str):
    """The tokenizer that the text of tokenizer.json describes.

    It neither cuts nor pads texts, whatever the text says.
    """
    tokenizers = import_tokenizers()
    with as_user_error(NO_TOKENIZER):
        inner = tokenizers.Tokenizer.from_str(text)
    inner.no_truncation()
    inner.no_padding()
    return inner


def tokenizer_of_older(files: Files, about: dict, config: dict) -> tuple[Any, dict]:
    """The tokenizer that older programs wrote in several files, and ``about`` with the special
    tokens that files need not name.
    """
    if "merges.txt" in files:
        return _byte_pairs_in(files, about, config)
    return _word_pieces_in(files, about)


def _byte_pairs_in(files, about, config):
    """A tokenizer as that of GPT-2 or of RoBERTa, of pairs of bytes."""
    lines = enumerate(text_in(files, "merges.txt").splitlines(), 1)
    merges = {
        f"merges.txt: line {i}": line
        for i, line in lines
        if line and not line.startswith("#version")
    }
    vocabulary = json_in(files, "vocab.json")
    for token, id_ in vocabulary.items():
        check_int(f"vocab.json: {token:.40}", id_, at_least=0)
    has_space = bool(about.get("add_prefix_space"))
    inner = byte_pairs(vocabulary, merges)
    inner.pre_tokenizer = import_tokenizers().pre_tokenizers.ByteLevel(has_space)
    if is_roberta(about, config):
        about = ROBERTA_TOKENS | about
        if isinstance(about["mask_token"], str):  # which has no space before it in a text
            form = {"lstrip": True, "normalized": False}
            about["mask_token"] = {"content": about["mask_token"], **form}
        inner.post_processor = _between(about, vocabulary)
    elif "<|endoftext|>" in vocabulary:
        about = GPT2_TOKENS | about
    return inner, about


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
            raise UserError(f"{key}={shown(about[key])}, expected a token of the vocabulary")
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
    pieces = text_in(files, "vocab.txt").splitlines()
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    about = BERT_TOKENS | about
    unknown = _text_in(about, "unk_token")
    tokenizers = import_tokenizers()
    with as_user_error(NO_TOKENIZER):
        inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token=unknown))
        inner.normalizer = tokenizers.normalizers.BertNormalizer(
            handle_chinese_chars=about.get("tokenize_chinese_chars", True),
            strip_accents=about.get("strip_accents"),
            lowercase=about.get("do_lower_case", True),
        )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.post_processor = _between(about, vocabulary)
    inner.decoder = tokenizers.decoders.WordPiece()
    return inner, about


def byte_pairs(vocabulary: dict[str, int], merges: dict[str, str], **options):
    """A tokenizer of byte pairs, such as "t h", which divides a text into words as GPT-2 does.

    The pairs are given by their places in a file, which errors name.
    """
    tokenizers = import_tokenizers()
    pairs = [_pair_in(place, merge, vocabulary) for place, merge in merges.items()]
    with as_user_error(NO_TOKENIZER):
        inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, pairs, **options))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return inner


def _pair_in(place, merge, vocabulary):
    """The two tokens of a pair, such as "t h"."""
    tokens = tuple(merge.split(" ")) if isinstance(merge, str) else ()
    if len(tokens) != 2:
        raise UserError(f"{place} is {shown(merge)}, expected two tokens with a space between them")
    for token in tokens:
        if token not in vocabulary:
            raise UserError(f"{place} has {shown(token)}, expected a token of the vocabulary")
    return tokens


def around_text(before: list[str], after: list[str], vocabulary: dict[str, int]):
    """The step that puts tokens before and after each text."""
    # It calls each token by its id: it would read "$" and ":" in a token as its own signs.
    special = [
        {"id": f"token {vocabulary[token]}", "ids": [vocabulary[token]], "tokens": [token]}
        for token in (*before, *after)
    ]
    names = [token["id"] for token in special]
    single = [*names[: len(before)], "$A", *names[len(before) :]]
    with as_user_error(NO_TOKENIZER):
        return import_tokenizers().processors.TemplateProcessing(
            single=single, pair=[*single, "$B"], special_tokens=special
        )
