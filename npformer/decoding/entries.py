"""The cache of a ``LanguageDecoder``: an entry for each token that was read or said."""

import numpy as np

STEPS_OF_GROWTH = 64  # by which the cache grows at least


class Entries:
    """The tokens of texts, with their keys and values; a row of the decoder is a list of entries.

    The first entries are those of the prompts. Those of the steps follow, ``max_rows`` for each
    step, and are a ring: what no row needs any more is written over. The cache grows as it is
    filled.

    Attributes
    ----------
    kv : (N, P, 2*G*K)
        The keys and values of P entries, of all layers.
    tokens : (P,) int
    n_of_prompts : int
        The number of entries of the prompts.
    prefix_length : int
        How many entries, from the first on, are the first positions of one text. Another prompt
        that begins as this text need not be read again up to there.
    """

    def __init__(self, empty_kv, max_rows):
        self._empty_kv = empty_kv  # a function of P
        self._max_rows = max_rows
        self.kv = empty_kv(0)
        self.tokens = np.empty(0, np.int64)
        self.n_of_prompts = 0
        self.prefix_length = 0

    def n_shared_with(self, ids):
        """How many of the first tokens of a text need not be read again."""
        n = min(self.prefix_length, len(ids))
        differences = np.flatnonzero(self.tokens[:n] != ids[:n])
        return int(differences[0]) if differences.size else n

    def begin(self, n_of_prompts, prefix_length):
        """Make room for prompts, in place of all entries but those of the prefix."""
        self.n_of_prompts = n_of_prompts
        self.prefix_length = prefix_length
        self._make_room(n_of_prompts + STEPS_OF_GROWTH * self._max_rows)

    def write(self, tokens, is_one_text):
        """Write the tokens of prompts whose keys and values are there; one text is a prefix."""
        self.tokens[: len(tokens)] = tokens
        if is_one_text:
            self.prefix_length = len(tokens)

    def forget_prefix(self):
        """Share nothing with the next prompt, because entries are no longer what they were."""
        self.prefix_length = 0

    def add_step(self, tokens, step, n_recent):
        """Return the first of the entries that the tokens of a step get.

        No row needs the entries of the step ``n_recent`` steps before any more.
        """
        first = self.n_of_prompts + step % n_recent * self._max_rows
        self._make_room(first + self._max_rows)
        self.prefix_length = min(self.prefix_length, first)
        self.tokens[first : first + len(tokens)] = tokens
        return first

    def lengthen_prefix(self, entry, position):
        """Count an entry, with its keys and values, if it goes on with the prefix."""
        if entry == position == self.prefix_length:
            self.prefix_length += 1

    def _make_room(self, n):
        """Grow the cache if it has fewer than n entries."""
        n_before = self.kv.shape[1]
        if n <= n_before:
            return
        # Twice as large at least, so that all copies together are no longer than the cache.
        kv = self._empty_kv(max(n, 2 * n_before))
        kv[:, :n_before] = self.kv
        self.kv = kv
        self.tokens = np.pad(self.tokens, (0, kv.shape[1] - n_before))
