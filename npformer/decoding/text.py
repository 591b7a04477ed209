"""The step-by-step decoder of a language model, which goes on with a text that it has read."""

import numpy as np

from npformer.checks import check_ids
from npformer.decoding.entries import Entries
from npformer.decoding.few_rows import StackStep
from npformer.decoding.reading import Texts, read
from npformer.decoding.stepwise import StepwiseDecoder
from npformer.errors import UserError
from npformer.layers.cache import KeyValueCache


class LanguageDecoder(StepwiseDecoder):
    """The step-by-step decoder of a ``LanguageModel``, which caches keys and values.

    It reads prompts before its first step, and may get others afterwards. There may be more than
    ``max_len`` steps, as entries of the cache that no row needs any more are used again.
    """

    side = ""

    def __init__(self, model, ops, params, prompts, max_rows, max_len):
        super().__init__(model, ops, params, len(prompts.ids), max_rows, max_len)
        layers = model.layers_of(params, "layers")
        self.stack = StackStep(self.ops, layers, model.layer_settings, max_rows, max_len)
        self.entries = Entries(self._empty_kv, max_rows)
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
        self._read_prompts(prompts.ids[:, :n])
        # Prompts are aligned at their ends, so that the latest positions of all rows are side by
        # side.
        column = np.arange(n) - (n - lengths[:, None])
        self._begin_with(np.arange(B)[:, None] * n + np.maximum(column, 0))
        # The position of the newest token of each row, from the first token on that the row sees.
        self.positions = lengths - 1
        self.slide = prompts.slide and not self.model.is_endless
        # How many of the latest tokens of a row may be needed again.
        self.n_recent = self.stack.settings.attention.window or self.model.max_len
        if self.slide:
            self.n_recent = max(self.n_recent, self.n_after_slide)

    def _read_prompts(self, ids):
        """Write the keys and values of prompts (B, n) into the first entries of the cache."""
        is_one_text = self.max_rows == 1 and len(ids) == 1
        n_shared = self.entries.n_shared_with(ids[0]) if is_one_text else 0
        # Before reading, which may be interrupted: then only the shared entries are right.
        self.entries.begin(ids.size, n_shared)
        if ids.shape[1] > n_shared:
            self._read(ids, n_shared, self.entries.kv)
        self.entries.write(ids.ravel(), is_one_text)

    def _read(self, ids, first, kv):
        """Write the keys and values of texts (B, n) into kv, from their position ``first`` on."""
        read(Texts(self.stack, self.model.d_model, self.embed, ids, first, kv))

    def _empty_kv(self, n_entries):
        """Keys and values of all layers (N, n_entries, 2*G*K)."""
        return self.empty_cache(len(self.stack.layers), n_entries, self.model.kv_width)

    # -- a step

    def _append(self, tokens, parents):
        """Give the newest token of each row an entry, and let rows slide whose context is full."""
        positions = self.positions[parents] + 1
        self._check_room(positions)
        self._extend(parents, self.entries.add_step(tokens, self.n_steps, self.n_recent))
        self.positions = positions
        if self.slide:
            full = np.flatnonzero(positions >= self.model.max_len)
            if len(full):
                self._read_again(full)
        longest = int(self.positions.max()) + 1
        self.at = self.at[:, -min(longest, self.n_recent) :]

    def _check_room(self, positions):
        """Raise an error if a context is full, and has to be long enough for its text."""
        longest = int(positions.max()) + 1
        if longest > self.model.max_len and not (self.slide or self.model.is_endless):
            limit = f"max_len={self.model.max_len} of the model"
            raise UserError(f"a text of {longest} tokens, expected at most {limit}")

    def _newest(self, tokens, t, part):
        positions = self.positions[part]
        x = self.embed(tokens[None], at=self.beside(positions))[0]
        x = self.stack(x, self._cache(part))
        y, _ = self.model.stack_output(self.ops, self.tables, "layers", x)
        if self.max_rows == 1:
            # Only after the step: an interrupt in it may leave the entry without its keys.
            self.entries.lengthen_prefix(self.at[0, -1], self.positions[0])
        return y

    def _cache(self, part):
        """What some rows see: their own entries; shorter rows have none in the first columns."""
        attention = self.stack.settings.attention
        positions = self.positions[part]
        at = self.at[part]
        if attention.window is not None:
            at = at[:, -attention.window :]
        keep_mask = None
        if self.positions.min() < self.positions.max():
            distances = np.arange(at.shape[1])[::-1]  # of the columns from the newest token
            keep_mask = self.beside((distances <= positions[:, None])[:, None, None])
        at = self.beside(np.ascontiguousarray(at))
        positions = self.beside(positions)
        return KeyValueCache(self.entries.kv, at, keep_mask, attention.rotary, positions)

    # -- contexts that are full

    @property
    def n_after_slide(self):
        """How many of the latest tokens a row keeps when its context is full."""
        return max(1, self.model.max_len // 2)

    def _read_again(self, rows):
        """Read the latest tokens of some rows, as if nothing were before them.

        They are written into the entries that the rows have for these tokens. Rows that share
        entries share the text up to there, so they go on at the same time, and with the same keys
        and values.
        """
        self.entries.forget_prefix()
        self.positions[rows] = self.n_after_slide - 1
        at = self.at[rows, -self.n_after_slide : -1]  # the step itself computes the newest token
        if at.size:
            kv = self._empty_kv(at.size)
            self._read(self.entries.tokens[at], 0, kv)
            self.entries.kv[:, self.beside(at)] = kv.reshape(len(kv), *at.shape, -1)
