"""The copy task: the target is the source, forwards or reversed."""

import zlib
from dataclasses import dataclass

import numpy as np

from npformer.checks import check_int
from npformer.decoding import greedy_decode
from npformer.errors import UserError
from npformer.operations.options import check_fields
from npformer.text.in_batches import pack

PAD, BOS, EOS = 0, 1, 2
FIRST_SYMBOL = 3


@dataclass(frozen=True)
class CopyTask:
    """Random sequences of symbols; each target is a copy of the source.

    The copy is between a begin and an end token. Of the ``vocab`` ids, 0 is padding, 1 the begin
    token and 2 the end token; the others are symbols. One sequence in ten, chosen by its checksum,
    is held out: it is never in a training batch.

    Parameters
    ----------
    vocab : int
        Number of ids, at least 4.
    min_len, max_len : int
        Minimum and maximum number of symbols in a sequence.
    reverse : bool
        Whether the target is the reversed source.
    seed : int

    Examples
    --------
    >>> src, tgt = CopyTask(vocab=11, min_len=2, max_len=4, reverse=True).batch(step=1, size=2)
    >>> src
    array([[ 6,  3,  6,  9],
           [ 7,  5, 10,  0]])
    >>> tgt
    array([[ 1,  9,  6,  3,  6,  2],
           [ 1, 10,  5,  7,  2,  0]])
    """

    vocab: int = 11
    min_len: int = 1
    max_len: int = 10
    reverse: bool = False
    seed: int = 0

    def __post_init__(self):
        check_fields(self)
        if self.vocab <= FIRST_SYMBOL:
            raise UserError(
                f"vocab={self.vocab}, expected at least {FIRST_SYMBOL + 1}: three ids are reserved"
            )
        if not 1 <= self.min_len <= self.max_len:
            raise UserError(
                f"min_len={self.min_len}, max_len={self.max_len}: expected 1 <= min_len <= max_len"
            )

    def batch(self, step: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return training batch number ``step``, src (B, S) and tgt (B, T+1).

        It is a function of (seed, step).
        """
        step = check_int("step", step, at_least=0)
        return self._draw([0, step], size, self.min_len, self.max_len, held_out=False)

    def held_out(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ``size`` different sequences that are in no training batch, as (src, tgt)."""
        return self._draw([1], size, self.min_len, self.max_len, held_out=True, distinct=True)

    def longer(self, size: int, extra: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return ``size`` sequences that are longer than any in training.

        They have max_len + 1 ... max_len + extra symbols.
        """
        extra = check_int("extra", extra, at_least=1)
        return self._draw([2], size, self.max_len + 1, self.max_len + extra, held_out=True)

    def _draw(self, key, size, min_len, max_len, held_out, distinct=False):
        rng = np.random.default_rng([self.seed, *key])
        size = check_int("size", size, at_least=1)
        sequences = []
        before = set()
        for _ in range(200 * size):
            length = rng.integers(min_len, max_len + 1)
            sequence = rng.integers(FIRST_SYMBOL, self.vocab, length)
            is_repeated = distinct and sequence.tobytes() in before
            if is_held_out(sequence) == held_out and not is_repeated:
                before.add(sequence.tobytes())
                sequences.append(sequence)
                if len(sequences) == size:
                    return self._pack(sequences)
        raise UserError(
            f"vocab={self.vocab}, min_len={min_len}, max_len={max_len}: "
            f"there are not {size} {'held-out' if held_out else 'training'} sequences; "
            "expected more symbols or longer sequences"
        )

    def _pack(self, sequences):
        targets = [sequence[::-1] for sequence in sequences] if self.reverse else sequences
        return pack(sequences, PAD), pack(targets, PAD, begin=BOS, end=EOS)


def is_held_out(sequence):
    """Return whether a sequence of symbols is held out of training, as one in ten is."""
    return zlib.crc32(np.asarray(sequence, dtype="<i8").tobytes()) % 10 == 0


def exact_match(model, params, src, tgt, *, backend="auto"):
    """Decode src (B, S) greedily; return the share of right targets (B, T+1), and (B, T') ids.

    A right one has every token right. The end token counts, too.
    """
    decoded = greedy_decode(
        model, params, src, bos_id=BOS, eos_id=EOS, max_len=tgt.shape[1] + 4, backend=backend
    )
    width = max(decoded.shape[1], tgt.shape[1] - 1)
    right = (_widen(decoded, width) == _widen(tgt[:, 1:], width)).all(axis=1)
    return float(right.mean()), decoded


def _widen(ids, width):
    return np.pad(ids, ((0, 0), (0, width - ids.shape[1])), constant_values=PAD)
