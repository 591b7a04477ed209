"""Conversion of sentences to ids of subword pieces, and back, by sentencepiece."""

import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from npformer.checks import check_choice, check_int, each_line, shown
from npformer.errors import UserError
from npformer.extras import imported
from npformer.files.paths import check_regular
from npformer.progress import say
from npformer.tokens.marks import mark, unmark

PAD, BOS, EOS, UNKNOWN = 0, 1, 2, 3
# A piece that is in no text; a vocabulary that has it was learned from marked text.
MARKED = "<marked>"
# Bytes; sentencepiece leaves longer ones out. A larger limit of sentencepiece is no way to learn
# from them: the time of "unigram" grows with the square of a line that repeats itself, from 0.2 s
# to more than 60 s for 280,000 letters.
LONGEST_PART = 4192
# Of more lines, this number is sampled to learn a vocabulary from, as each takes memory.
MOST_LINES = 2_000_000
AT_ONCE = 5000  # lines converted at a time, as lists of ids take ten times as much memory as arrays


class SizeError(UserError):
    """No vocabulary of this size can be learned from the text."""


class Subwords:
    """A vocabulary of subword pieces, which converts sentences to ids and ids to sentences.

    In every vocabulary made by ``learn``, ids 0, 1, 2, 3 are padding, begin, end and "unknown", and
    (with ``marks``) text is marked (``npformer.tokens.marks``) before it is divided into pieces, so
    that a word is the same at the beginning of a sentence, after an apostrophe and before a full
    stop.

    Parameters
    ----------
    model : bytes
        A sentencepiece model, such as the content of a model file; see also ``learn`` and ``read``.

    Examples
    --------
    >>> lines = ["a man rides a bicycle", "a woman rides a horse", "the man sees the horse"]
    >>> subwords = Subwords.learn(lines, size=40)
    >>> [ids] = subwords.encode(["the woman rides"])
    >>> subwords.decode([ids])
    ['the woman rides']
    >>> subwords.pieces(ids)[0]
    '▁the'
    """

    def __init__(self, model):
        if not isinstance(model, (bytes, bytearray, memoryview)):
            expected = "expected the bytes of a sentencepiece model"
            if isinstance(model, (str, os.PathLike)):
                expected += ": Subwords.read(path) reads a file"
            raise TypeError(f"model={shown(model)} is a {type(model).__name__}, {expected}")
        self.model = bytes(model)
        try:
            self._processor = import_sentencepiece().SentencePieceProcessor(model_proto=self.model)
        except RuntimeError as error:
            raise UserError(f"model is not a sentencepiece model: {error}") from error
        self.pad_id = self._processor.pad_id()
        self.bos_id = self._processor.bos_id()
        self.eos_id = self._processor.eos_id()
        ids = {"pad": self.pad_id, "bos": self.bos_id, "eos": self.eos_id}
        if missing := [name for name, id_ in ids.items() if id_ < 0]:
            expected = "expected one with pad, bos and eos ids"
            raise UserError(f"the sentencepiece model has no {missing} piece, {expected}")
        self.unknown_id = self._processor.unk_id()
        self.marked = self._processor.piece_to_id(MARKED) != self.unknown_id

    def __repr__(self):
        return f"<Subwords, {len(self):,} pieces>"

    def __len__(self):
        return self._processor.get_piece_size()

    @property
    def array(self):
        """Its model as an array, for a checkpoint; ``bytes_in`` reads it."""
        return np.frombuffer(self.model, np.uint8)

    @classmethod
    def learn(cls, lines, size, *, kind="bpe", marks=True, at_most=False):
        """Learn a vocabulary from text.

        Parameters
        ----------
        lines : iterable of str
            The text; for a joint vocabulary, that of both languages.
        size : int
            Number of pieces V, including the four special ones.
        kind : "bpe" or "unigram"
            Byte-pair encoding (Sennrich et al. 2016) or the unigram model (Kudo 2018).
        marks : bool
            Whether to mark capitals and missing spaces; if False, the text is used as it is, with
            all its spaces.
        at_most : bool
            Whether to learn fewer pieces if the text does not have as many, which is an error
            otherwise.
        """
        size = check_int("size", size, at_least=5)
        check_choice("kind", kind, ("bpe", "unigram"))
        lines = each_line("lines", lines)
        model = io.BytesIO()
        errors = []
        try:
            import_sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=_prepared(lines, marks, errors),
                model_writer=model,
                **_trainer_options(size, kind, marks, at_most),
            )
        except RuntimeError as error:
            if errors:
                raise errors[0] from None
            what = f"no vocabulary of size={size} could be learned from this text"
            raise SizeError(f"{what}: {_why_not(error)}") from error
        return cls(model.getvalue())

    @classmethod
    def read(cls, path):
        """Read a vocabulary from a sentencepiece model file."""
        path = Path(path)
        if not path.exists():
            expected = "expected a model file of spm_train"
            raise FileNotFoundError(f"there is no sentencepiece model {path}, {expected}")
        check_regular(path)
        try:
            return cls(path.read_bytes())
        except ValueError as error:
            raise UserError(f"{path}: {error}") from error

    def encode(self, lines):
        """Return the ids of each line, a list of arrays of int32, without begin and end tokens."""
        lines = list(each_line("lines", lines))
        ids = []
        for first in range(0, len(lines), AT_ONCE):
            block = lines[first : first + AT_ONCE]
            if self.marked:
                block = list(map(mark, block))
            rows = self._processor.encode(block, num_threads=1)
            ids += [np.array(row, np.int32) for row in rows]
        return ids

    def decode(self, ids):
        """Return the sentence of each sequence of ids, up to its end token.

        Padding and begin tokens are skipped.
        """
        lines = self._processor.decode([self._words_of(row) for row in ids], num_threads=1)
        return list(map(unmark, lines)) if self.marked else lines

    def pieces(self, ids):
        """Return the piece of each id as text, in which ``▁`` is a space."""
        return [self._processor.id_to_piece(int(id_)) for id_ in ids]

    def _words_of(self, row):
        row = [int(id_) for id_ in np.asarray(row)]
        end = row.index(self.eos_id) if self.eos_id in row else len(row)
        return [id_ for id_ in row[:end] if id_ not in (self.pad_id, self.bos_id)]


def bytes_in(arrays, name):
    """The bytes that an array of a checkpoint holds."""
    array = arrays.get(name)
    if array is None or array.dtype != np.uint8 or array.ndim != 1:
        there = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
        raise UserError(f"{name}: given {there}, expected bytes")
    return array.tobytes()


def learned_by_first(texts, setting, size, ranks):
    """A vocabulary for each text, which rank 0 learns; a smaller one if a text has too few pieces.

    Each text is a function that returns its lines. ``setting`` is what the size is called in the
    settings of the training.
    """

    def models():
        try:
            return [Subwords.learn(lines(), size, at_most=True).model.hex() for lines in texts]
        except SizeError as error:
            raise UserError(f"{setting}={size}: {error}") from error

    vocabularies = [Subwords(bytes.fromhex(model)) for model in ranks.first(models)]
    for subwords in vocabularies:
        if len(subwords) < size and ranks.is_first:
            n = f"{len(subwords):,} pieces, all of the text, instead of {size:,}"
            say(f"the vocabulary has {n}")
    return vocabularies


def _trainer_options(size, kind, marks, at_most):
    """What sentencepiece is asked for, besides the text."""
    return {
        "vocab_size": size,
        "hard_vocab_limit": not at_most,
        "model_type": kind,
        "character_coverage": 1.0,
        "input_sentence_size": MOST_LINES,
        "shuffle_input_sentence": True,
        "pad_id": PAD,
        "bos_id": BOS,
        "eos_id": EOS,
        "unk_id": UNKNOWN,
        # Marks already separate words and signs, and l'‿ may be one piece.
        "split_by_unicode_script": not marks,
        "control_symbols": [MARKED] if marks else [],
        # Unmarked text stays as it is, also where it has several spaces, as the indentation of a
        # program.
        "remove_extra_whitespaces": marks,
        "normalization_rule_name": "nmt_nfkc" if marks else "identity",
        "num_threads": 1,  # the same pieces on every machine
        "minloglevel": 2,
    }


def _prepared(lines, marks, errors):
    """Yield lines to learn from, marked and in parts that are short enough.

    An error, an interrupt too, is appended to ``errors``: sentencepiece reports only INTERNAL.
    """
    try:
        for line in map(mark, lines) if marks else lines:
            yield from _in_parts(line)
    except BaseException as error:
        errors.append(error)
        raise


def _why_not(error):
    """Why sentencepiece has learned no vocabulary of a size."""
    message = str(error)
    # "Vocabulary size too high (400). Please set it to a value <= 25."
    if most := re.search(r"<= (\d+)", message):
        return f"expected at most {most[1]}"
    # "Vocabulary size is smaller than required_chars. 5 vs 12. Increase vocab_size or …"
    if least := re.search(r"\d+ vs (\d+)", message):
        return f"expected at least {least[1]}"
    return message


def _in_parts(line):
    """Yield a line, or parts of it that are short enough to learn from."""
    if len(line.encode()) <= LONGEST_PART:
        yield line
        return
    size = LONGEST_PART // 4  # characters, which have at most 4 bytes each
    for first in range(0, len(line), size):
        yield line[first : first + size]


def import_sentencepiece() -> Any:
    """The package sentencepiece."""
    return imported("sentencepiece", "translation", "subwords need")
