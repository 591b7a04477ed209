"""The text of tokenizer.json, of what older programs wrote in its place."""

from npformer.checks import shown
from npformer.pretrained.files import Files, json_in, text_in
from npformer.pretrained.keys import table
from npformer.pretrained.tokenizer_settings import text_of

# The special tokens of three kinds of tokenizers, where no file names others.
OF_GPT2 = table("""
    bos_token  <|endoftext|>
    eos_token  <|endoftext|>
    """)
OF_BERT = table("""
    unk_token   [UNK]
    cls_token   [CLS]
    sep_token   [SEP]
    pad_token   [PAD]
    mask_token  [MASK]
    """)
OF_ROBERTA = table("""
    bos_token   <s>
    cls_token   <s>
    eos_token   </s>
    sep_token   </s>
    unk_token   <unk>
    pad_token   <pad>
    mask_token  <mask>
    """)
# Steps of tokenizer.json: words as GPT-2 has them, in its characters for bytes, and back.
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def whole_of_older(files: Files, about: dict, config: dict) -> tuple[dict, dict]:
    """What tokenizer.json would say, and ``about`` with the special tokens that files need not
    name.
    """
    if "merges.txt" in files:
        return _byte_pairs_in(files, about, config)
    return _word_pieces_in(files, about)


def _byte_pairs_in(files, about, config):
    """A tokenizer as that of GPT-2 or of RoBERTa, of pairs of bytes."""
    lines = text_in(files, "merges.txt").splitlines()
    merges = [line for line in lines if line and not line.startswith("#version")]
    vocabulary = json_in(files, "vocab.json")
    has_space = bool(about.get("add_prefix_space"))
    whole = byte_pairs(vocabulary, merges, BYTES | {"add_prefix_space": has_space})
    if is_roberta(about, config):
        about = OF_ROBERTA | about
        if isinstance(about["mask_token"], str):  # which has no space before it in a text
            form = {"lstrip": True, "normalized": False}
            about["mask_token"] = {"content": about["mask_token"], **form}
        whole["post_processor"] = _between(about, vocabulary)
    elif "<|endoftext|>" in vocabulary:
        about = OF_GPT2 | about
    return whole, about


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
    pieces = text_in(files, "vocab.txt").splitlines()
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    about = OF_BERT | about
    mark = "##"  # of a piece that goes on with a word
    whole = {
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
    return whole, about


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
    text = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    single = [*map(_special, before), text, *map(_special, after)]
    steps = {"single": single, "pair": [*single, second], "special_tokens": special}
    return {"type": "TemplateProcessing"} | steps


def _special(token):
    """A special token in such a step."""
    return {"SpecialToken": {"id": token, "type_id": 0}}
