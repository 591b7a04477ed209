"""A text as token ids: random passages to train on, and the passages that are held out."""

import math
import os

import numpy as np

from npformer.checks import check_int
from npformer.data.parallel_text import read_lines
from npformer.operations.options import check_option
from npformer.reference import derive_key, random_bits

HELD_OUT = 0.1  # of a text, at its end


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
    >>> from npformer.language import Characters
    >>> text = Text("a man rides a horse. " * 9, "a horse rides. ", Characters("amnridesho. "), length=4)
    >>> text.batch(seed=0, step=1, size=3)[0].shape
    (3, 5)
    >>> [ids] = text.held_out_batches(size=8)[0]
    >>> [text.tokens.decode(row) for row in ids]
    ['a hor', 'rse r', 'rides']
    """

    def __init__(self, training, held_out, tokens, length):
        self.tokens, self.length, self.n_held_out = tokens, check_int("length", length, at_least=1), len(held_out)
        self.ids, self.held_out = tokens.encode(training), tokens.encode(held_out)
        for name, ids in (("the text", self.ids), ("the held-out text", self.held_out)):
            if len(ids) <= length:
                raise ValueError(f"{name} has {len(ids)} tokens, expected more than length={length}")

    def batch(self, seed, step, size):
        """A batch of passages from random places, (ids (B, T+1),): a function of (seed, step)."""
        size = check_int("size", size, at_least=1)
        step = check_int("step", step, at_least=0)
        seed = check_option("seed", seed)
        places = random_bits(np.arange(size), derive_key(seed, step)) % np.uint32(len(self.ids) - self.length)
        return (self.ids[places.astype(np.int64)[:, None] + np.arange(self.length + 1)].astype(np.int64),)

    def held_out_batches(self, size):
        """All of the held-out text in batches of passages one after another, but what fills no passage at its end."""
        size = check_int("size", size, at_least=1)
        n = (len(self.held_out) - 1) // self.length
        rows = np.arange(n)[:, None] * self.length + np.arange(self.length + 1)
        ids = self.held_out[rows].astype(np.int64)
        return [(ids[first : first + size],) for first in range(0, n, size)]

    def bits_per_character(self, loss):
        """The loss per token of the held-out text, in nats, as bits for each character: comparable for all tokens."""
        return loss / math.log(2) * len(self.held_out) / self.n_held_out


def read_text(path):
    """The text of a file, plain or .gz."""
    return text_of(read_lines(path), path)


def text_of(lines, name):
    """The text of lines; raises if there is none, or if it is no text. ``name`` is for error messages."""
    text = "\n".join(lines)
    if not text.strip():
        raise ValueError(f"{name} {'has only blank lines' if text else 'is empty'}, expected a text")
    if "\0" in text:
        raise ValueError(f"{name} has bytes of 0: expected a text, not another kind of file")
    return text + "\n"


def read_both(path, held_out=None):
    """The texts to train on and to hold out, of two files or of one, whose last tenth is held out."""
    text = read_text(path)
    if held_out:
        if os.path.realpath(held_out) == os.path.realpath(path):  # which takes links that lead to themselves
            raise ValueError(f"{held_out} is the text of the training, expected another")
        return text, read_text(held_out)
    end = round(len(text) * (1 - HELD_OUT))
    return text[:end], text[end:]
