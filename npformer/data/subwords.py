"""Between sentences and ids: subword pieces, by sentencepiece (``pip install npformer[translation]``)."""

import io
from pathlib import Path

import numpy as np

from npformer.checks import check_int
from npformer.data.marks import mark, unmark

PAD, BOS, EOS, UNKNOWN = 0, 1, 2, 3
MARKED = "<marked>"  # a piece that no text has: its vocabulary was learned from marked text
AT_ONCE = 5000  # lines whose ids exist as Python lists, ten times as large as arrays


class Subwords:
    """A vocabulary of pieces; a sentence becomes their ids, and ids a sentence again.

    Ids 0, 1, 2, 3 are padding, begin, end and "unknown" in every vocabulary made by ``learn``, and its text is marked
    (``npformer.data.marks``) before it is cut, so that a word is the same at the beginning of a sentence, behind an
    apostrophe and before a full stop.

    Parameters
    ----------
    model : bytes
        A sentencepiece model; ``learn`` makes one, ``read`` takes one from a file.

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
        self.model = bytes(model)
        try:
            self._processor = _sentencepiece().SentencePieceProcessor(model_proto=self.model)
        except RuntimeError as error:
            raise ValueError(f"model is not a sentencepiece model: {error}") from error
        given = {name: getattr(self._processor, f"{name}_id")() for name in ("pad", "bos", "eos")}
        if min(given.values()) < 0:
            missing = [name for name, id_ in given.items() if id_ < 0]
            raise ValueError(f"the sentencepiece model has no {missing} piece, expected one with pad, bos and eos ids")
        self.marked = self._processor.piece_to_id(MARKED) != self._processor.unk_id()
        self.pad_id, self.bos_id, self.eos_id = given["pad"], given["bos"], given["eos"]

    def __len__(self):
        return self._processor.get_piece_size()

    @classmethod
    def learn(cls, lines, size, *, kind="bpe", marks=True, n_lines=2_000_000):
        """A vocabulary from text.

        Parameters
        ----------
        lines : iterable of str
            Of both languages, for a joint vocabulary.
        size : int
            Pieces V, the four special ones included.
        kind : "bpe" or "unigram"
            Byte-pair encoding (Sennrich et al. 2016) or the unigram model (Kudo 2018).
        marks : bool
            Whether to mark capitals and missing spaces; without, pieces are of the text as it is.
        n_lines : int
            More lines than this are sampled from, as learning needs memory for each.
        """
        check_int("size", size, at_least=5)
        if kind not in ("bpe", "unigram"):
            raise ValueError(f"kind={kind!r}, expected 'bpe' or 'unigram'")
        model, errors = io.BytesIO(), []

        def watched():
            try:
                yield from map(mark, lines) if marks else lines
            except Exception as error:
                errors.append(error)  # sentencepiece would say INTERNAL and no more of it
                raise

        try:
            _sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=watched(),
                model_writer=model,
                vocab_size=size,
                model_type=kind,
                character_coverage=1.0,
                input_sentence_size=n_lines,
                shuffle_input_sentence=True,
                pad_id=PAD,
                bos_id=BOS,
                eos_id=EOS,
                unk_id=UNKNOWN,
                split_by_unicode_script=not marks,  # marking has cut words from signs; l'‿ may be one piece
                control_symbols=[MARKED] if marks else [],
                num_threads=1,  # the same pieces everywhere
                minloglevel=2,
            )
        except RuntimeError as error:
            if errors:
                raise errors[0] from None
            raise ValueError(
                f"no vocabulary of size={size} could be learned from this text (in scripts --vocab-size): {error}"
            ) from error
        return cls(model.getvalue())

    @classmethod
    def read(cls, path):
        """A vocabulary from a sentencepiece file."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no sentencepiece model {path}, expected a file that spm_train has made")
        try:
            return cls(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def encode(self, lines):
        """The ids of each line, without begin and end.

        Parameters
        ----------
        lines : list of str

        Returns
        -------
        list of arrays of int32
        """
        lines, ids = list(lines), []
        for first in range(0, len(lines), AT_ONCE):
            block = lines[first : first + AT_ONCE]
            block = list(map(mark, block)) if self.marked else block
            ids += [np.array(row, np.int32) for row in self._processor.encode(block, num_threads=1)]
        return ids

    def decode(self, ids):
        """The sentence of each sequence of ids, up to its end token, without padding and begin."""
        lines = self._processor.decode([self._words_of(row) for row in ids], num_threads=1)
        return list(map(unmark, lines)) if self.marked else lines

    def pieces(self, ids):
        """The text of each id, ``▁`` being a space."""
        return [self._processor.id_to_piece(int(id_)) for id_ in ids]

    def _words_of(self, row):
        row = [int(id_) for id_ in np.asarray(row)]
        end = row.index(self.eos_id) if self.eos_id in row else len(row)
        return [id_ for id_ in row[:end] if id_ not in (self.pad_id, self.bos_id)]


def _sentencepiece():
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError("subwords need sentencepiece: pip install 'npformer[translation]'") from error
    return sentencepiece
