"""From text to token ids and back: characters, or pieces of words.

They lie below ``npformer.pretrained``, which saves them beside a model.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from npformer.checks import check_ids
from npformer.errors import UserError
from npformer.files.checkpoint import load_checkpoint, refusing
from npformer.tokens.subwords import Subwords, bytes_in

END_OF_LINE = "\n"
CHARACTERS, PIECES = "npformer_characters.txt", "npformer_pieces.model"  # beside a saved model


class Tokens:
    """What every tokenizer of a model has: here, no token begins, ends or pads a text."""

    bos_id: int | None = None
    eos_id: int | None = None
    pad_id: int | None = None
    unk_id: int | None = None
    eos_ids: tuple[int, ...] = ()  # all tokens that end a text
    chat_template: str | None = None
    chat_templates: dict[str, str] = {}
    family: str | None = None  # that of the model with which it was loaded
    files: dict[str, bytes] = {}  # by their names, for ``npformer.pretrained.save``

    def encode(self, text: str) -> Sequence[int] | np.ndarray:
        """The ids of a text."""
        raise NotImplementedError

    def decode(self, ids: Any) -> str:
        """The text of ids."""
        raise NotImplementedError

    def __len__(self) -> int:
        """The number of different tokens."""
        raise NotImplementedError

    def id_of(self, token: str) -> int | None:
        """The id of a token that has a meaning of its own, or None."""
        return None

    def unknown(self, text):
        """A part of a text that ``encode`` takes and the training did not have, or ""."""
        return ""

    def cut(self, text, longest):
        """The first ids of a text."""
        return self.encode(text)[:longest]


class Characters(Tokens):
    """The characters of a text as tokens, in the order of Unicode.

    Parameters
    ----------
    text : str

    Examples
    --------
    >>> characters = Characters("a man rides")
    >>> ids = characters.encode("red")
    >>> ids, characters.decode(ids), len(characters)
    (array([7, 3, 2], dtype=int32), 'red', 9)
    >>> characters.encode("Red")
    Traceback (most recent call last):
    npformer.UserError: the text has 'R', \
which is no character of the text of the training: leave it out
    """

    def __init__(self, text):
        if not isinstance(text, str) or not text:
            kind = type(text).__name__
            raise UserError(f"text is a {kind}, {text!r:.40}, expected a str that is not empty")
        self.all = "".join(sorted(set(text)))
        self._ids = {character: id_ for id_, character in enumerate(self.all)}

    def __len__(self):
        return len(self.all)

    def __repr__(self):
        return f"<Characters, {len(self)} of them>"

    def encode(self, text):
        """The ids of a text, int32."""
        try:
            return np.fromiter(map(self._ids.__getitem__, text), np.int32, len(text))
        except KeyError as error:
            why = "which is no character of the text of the training"
            raise UserError(f"the text has {error.args[0]!r}, {why}: leave it out") from None

    def decode(self, ids):
        """The text of ids."""
        # NumPy makes floats of an empty list, which are no ids.
        check_ids(np.asarray(ids, None if len(ids) else int), len(self), "ids")
        if np.ndim(ids) != 1:
            expected = "those of one text: decode each row"
            raise UserError(f"ids has shape {np.shape(ids)}, expected {expected}")
        return "".join(self.all[id_] for id_ in ids)

    @property
    def arrays(self):
        """What ``tokens_in`` reads, for a checkpoint."""
        return {"characters": np.frombuffer(self.all.encode(), np.uint8)}

    @property
    def files(self):
        """What ``npformer.pretrained`` reads, by its name."""
        return {CHARACTERS: self.all.encode()}


class Pieces(Tokens):
    r"""Pieces of words as tokens, and a token at the end of each line; needs sentencepiece.

    Parameters
    ----------
    subwords : Subwords

    Examples
    --------
    >>> lines = ["a man rides a bicycle", "a woman rides a horse"]
    >>> pieces = Pieces(Subwords.learn(lines, size=32))
    >>> pieces.decode(pieces.encode("a man rides\na horse"))
    'a man rides\na horse'
    """

    def __init__(self, subwords):
        self.subwords = subwords

    def __len__(self):
        return len(self.subwords)

    def __repr__(self):
        return f"<Pieces, {len(self):,} of them>"

    def encode(self, text):
        """The ids of a text, int32."""
        lines = self.subwords.encode(text.split(END_OF_LINE))
        with_ends = [[*ids, self.subwords.eos_id] for ids in lines]
        return np.concatenate(with_ends)[:-1].astype(np.int32)

    def unknown(self, text):
        """The first word with a character that no text of the training had, or ""."""
        words = text.split()
        for word, ids in zip(words, self.subwords.encode(words), strict=True):
            if self.subwords.unknown_id in ids:
                return word
        return ""

    def decode(self, ids):
        """The text of ids."""
        lines: list[list[int]] = [[]]
        for id_ in ids:
            if id_ == self.subwords.eos_id:
                lines.append([])
            else:
                lines[-1].append(id_)
        return END_OF_LINE.join(self.subwords.decode(lines))

    @property
    def arrays(self):
        """What ``tokens_in`` reads, for a checkpoint."""
        return {"subwords": self.subwords.array}

    @property
    def files(self):
        """What ``npformer.pretrained`` reads, by its name."""
        return {PIECES: self.subwords.model}


def load_tokens(path):
    """The tokens in a checkpoint of ``train-gpt``, or one with ``tokens.arrays``.

    That is what ``trainer.save(path, arrays=tokens.arrays)`` writes.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Characters or Pieces

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    CheckpointError
        If it is damaged, or holds no tokens.

    Examples
    --------
    >>> load_tokens("no-such-model.safetensors")
    Traceback (most recent call last):
    FileNotFoundError: there is no checkpoint no-such-model.safetensors
    """
    arrays, _ = load_checkpoint(path)
    with refusing(path):
        return tokens_in(arrays)


def tokens_in(arrays):
    """The tokens in the arrays of a checkpoint."""
    if "characters" in arrays:
        return Characters(bytes_in(arrays, "characters").decode())
    if "subwords" in arrays:
        return Pieces(Subwords(bytes_in(arrays, "subwords")))
    advice = "save it by trainer.save(path, arrays=tokens.arrays)"
    raise UserError(f"it holds no characters and no subwords: {advice}")
