"""The step-by-step decoder of a language model, which goes on with a text that it has read."""

import numpy as np

from npformer.checks import check_ids
from npformer.decoding.few_rows import StackStep
from npformer.decoding.reading import read
from npformer.decoding.stepwise import StepwiseDecoder
from npformer.layers.cache import KeyValueCache

BLOCK = 64  # steps by which a cache grows at least


class LanguageDecoder(StepwiseDecoder):
    """The step-by-step decoder of a ``LanguageModel``, which caches keys and values.

    The cache begins with the entries of the prompts, all but the last token of each; ``max_rows``
    entries of each step follow. It grows as it is filled, and the entries of steps that no row
    needs any more are used again. So there may be more than ``max_len`` steps.
    """

    side = ""

    def __init__(self, model, ops, params, prompts, max_rows, max_len):
        super().__init__(model, ops, params, len(prompts.ids), max_rows, max_len)
        layers = model.layers_of(params, "layers")
        self.stack = StackStep(self.ops, layers, model.layer_settings, max_rows, max_len)
        self.kv = self._empty_kv(0)
        self.tokens = np.empty(0, np.int64)  # of the entries of the cache
        # How many entries, from the first on, are the first positions of one text.
        self.n_in_order = 0
        self.begin(prompts)

    # -- prompts

    def begin(self, prompts):
        """Read prompts, all but the last token of each; the next step is then the first.

        With max_rows=1, what a prompt has in common with the beginning of all that was read and
        said is not read again. With ``prompts.slide``, a row whose context is full goes on with the
        latest half of it.
        """
        check_ids(prompts.ids, self.model.vocab, "prompts")
        if not self.model.is_endless:
            prompts = prompts.latest(self.model.max_len)
        lengths = prompts.lengths - 1
        B = len(lengths)
        n = max(lengths, default=0)
        self._read(prompts.ids[:, :n])
        # Prompts are aligned at their ends, so that the latest positions of all rows are side by
        # side.
        column = np.arange(n) - (n - lengths[:, None])
        self.at = np.arange(B)[:, None] * n + np.maximum(column, 0)
        # Of the latest token of each row, counted from the first that the row sees.
        self.positions = lengths - 1
        self.sources = np.arange(B)
        self.n_steps = 0
        self.n_prompt_entries = B * n
        self.slide = prompts.slide and not self.model.is_endless
        # How many of the latest tokens of a row may be read again.
        self.n_needed = self.stack.settings.attention.window or self.model.max_len
        if self.slide:
            self.n_needed = max(self.n_needed, self.n_kept)

    def _read(self, ids):
        """Write the keys and values of prompts (B, n) into the first entries of the cache."""
        n_known = self.n_known(ids[0]) if len(ids) == 1 else 0
        self.n_in_order = n_known  # before reading, which may be interrupted
        self._make_room(ids.size + BLOCK * self.max_rows)
        if ids.shape[1] > n_known:
            read(self, ids, n_known, self.kv)
        self.tokens[: ids.size] = ids.ravel()
        if len(ids) == self.max_rows == 1:
            self.n_in_order = ids.size

    def n_known(self, ids):
        """How many of the first tokens of a prompt need not be read again."""
        n = min(self.n_in_order, len(ids))
        differences = np.flatnonzero(self.tokens[:n] != ids[:n])
        return int(differences[0]) if differences.size else n

    # -- the entries of the cache

    def _empty_kv(self, n_entries):
        """Keys and values of all layers (N, n_entries, 2*G*K)."""
        return self.empty_cache(len(self.stack.layers), n_entries, self.model.kv_width)

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

    def _append(self, tokens, parents):
        positions = self.positions[parents] + 1
        longest = int(positions.max()) + 1
        is_too_long = longest > self.model.max_len and not self.model.is_endless
        if is_too_long and not self.slide:
            limit = f"max_len={self.model.max_len} of the model"
            raise ValueError(f"a text of {longest} tokens, expected at most {limit}")
        # A ring: no row needs the entries of the step so many steps before any more.
        first = self.n_prompt_entries + self.n_steps % self.n_needed * self.max_rows
        self._make_room(first + self.max_rows)
        if first < self.n_in_order:  # the entries of a step that no row needs any more
            self.n_in_order = self.n_prompt_entries
        self._extend(parents, first)
        self.tokens[first : first + len(tokens)] = tokens
        self.positions = positions
        full = np.flatnonzero(positions >= self.model.max_len)
        if self.slide and len(full):
            self._read_kept_tokens(full)
        longest = int(self.positions.max()) + 1
        self.at = self.at[:, -min(longest, self.n_needed) :]

    # -- contexts that are full

    @property
    def n_kept(self):
        """How many of the latest tokens a row keeps when its context is full."""
        return max(1, self.model.max_len // 2)

    def _read_kept_tokens(self, rows):
        """Read the latest tokens of some rows again, as if nothing were before them.

        They are written into the entries that the rows have for these tokens. Rows that share
        entries share the text up to there, so they go on at the same time, and with the same keys
        and values.
        """
        self.n_in_order = 0
        self.positions[rows] = self.n_kept - 1
        at = self.at[rows, -self.n_kept : -1]  # the step itself computes the newest token
        if at.size:
            kv = self._empty_kv(at.size)
            read(self, self.tokens[at], 0, kv)
            self.kv[:, self.beside(at)] = kv.reshape(len(kv), *at.shape, -1)

    # -- a step

    def _newest(self, tokens, t, part):
        positions = self.positions[part]
        x = self.embed(tokens[None], at=self.beside(positions))[0]
        y, _ = self.model.stack_output(
            self.ops, self.tables, "layers", self.stack(x, self._cache(part))
        )
        # Only after the step: an interrupt in it may leave the entry without its keys.
        if self.max_rows == 1 and self.at[0, -1] == self.positions[0] == self.n_in_order:
            self.n_in_order += 1
        return y

    def _cache(self, part):
        """What some rows see: their own entries; shorter rows have none in the first columns."""
        attention = self.stack.settings.attention
        at = self.at[part, -(attention.window or self.n_needed) :]
        positions, keep_mask = self.positions[part], None
        if self.positions.min() < self.positions.max():
            distances = np.arange(at.shape[1])[::-1]  # of the columns from the newest token
            keep_mask = self.beside((distances <= positions[:, None])[:, None, None])
        at = self.beside(np.ascontiguousarray(at))
        return KeyValueCache(self.kv, at, keep_mask, attention.rotary, self.beside(positions))
