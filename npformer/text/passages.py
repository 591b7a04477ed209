"""A text as token ids: random passages to train on, and the passages that are held out."""

import math

import numpy as np

from npformer.checks import check_int
from npformer.errors import UserError
from npformer.operations.options import check_option
from npformer.reference import derive_key, random_bits


class Text:
    """A text, whose end, or another text, is held out.

    Parameters
    ----------
    training, held_out : str
    tokens : Characters or Pieces
    length : int
        Number of tokens T that are predicted in a passage.

    Examples
    --------
    >>> from npformer.tokens import Characters
    >>> training, held_out = "a man rides a horse. " * 9, "a horse rides. "
    >>> text = Text(training, held_out, Characters("amnridesho. "), length=4)
    >>> text.batch(seed=0, step=1, size=3)[0].shape
    (3, 5)
    >>> [ids] = text.held_out_batches(size=8)[0]
    >>> [text.tokens.decode(row) for row in ids]
    ['a hor', 'rse r', 'rides']
    """

    def __init__(self, training, held_out, tokens, length):
        self.tokens = tokens
        self.length = check_int("length", length, at_least=1)
        self.n_held_out = len(held_out)  # characters
        self.ids = tokens.encode(training)
        self.held_out = tokens.encode(held_out)
        of_held_out = "the held-out text, the last tenth of the text if none is given,"
        for name, ids in (("the text", self.ids), (of_held_out, self.held_out)):
            if len(ids) <= length:
                raise UserError(
                    f"{name} has {len(ids)} tokens, expected more than length={length}: "
                    "give a longer text, or a smaller length"
                )

    def batch(self, seed, step, size):
        """A batch of passages from random places, (ids (B, T+1),): a function of (seed, step)."""
        size = check_int("size", size, at_least=1)
        step = check_int("step", step, at_least=0)
        seed = check_option("seed", seed)
        bits = random_bits(np.arange(size), derive_key(seed, step))
        places = bits % np.uint32(len(self.ids) - self.length)
        return (self._passages(self.ids, places.astype(np.int64)),)

    def held_out_batches(self, size):
        """All of the held-out text, in batches of passages one after another.

        What fills no passage at its end is left out.
        """
        size = check_int("size", size, at_least=1)
        n = (len(self.held_out) - 1) // self.length
        ids = self._passages(self.held_out, np.arange(n) * self.length)
        return [(ids[first : first + size],) for first in range(0, n, size)]

    def _passages(self, ids, places):
        """The passages that begin at these places, int64 (B, T+1)."""
        return ids[places[:, None] + np.arange(self.length + 1)].astype(np.int64)

    def bits_per_character(self, loss):
        """A loss per token of the held-out text, in nats, as bits for each character.

        Unlike the loss, it is comparable for all kinds of tokens.
        """
        return loss / math.log(2) * len(self.held_out) / self.n_held_out
