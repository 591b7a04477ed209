"""The step-by-step decoder of a decoder-only Transformer, which goes on with a text that it has read."""

from itertools import pairwise, starmap, takewhile

import numpy as np

from npformer import tree
from npformer.arrays import beside
from npformer.checks import check_ids
from npformer.decoding.stepwise import StepwiseDecoder
from npformer.layers.cache import BlockCache, KeyValueCache
from npformer.layers.multi_head import self_attention_heads
from npformer.layers.normalisation import normalise
from npformer.layers.transformer import encoder_layer
from npformer.quantized import dequantized, is_quantized
from npformer.runtime.host import n_slices
from npformer.runtime.threads import FEW_ROWS, in_order

BLOCK = 64  # steps by which a cache grows at least
READ_AT_ONCE = 1024  # positions of a text


class LanguageDecoder(StepwiseDecoder):
    """The step-by-step decoder of a ``LanguageModel``, which caches keys and values; ``decoder`` makes one.

    The cache begins with the entries of the prompts, all but the last token of each; ``max_rows`` entries of each step
    follow. It grows as it is filled, and the entries of steps that no row needs any more are used again. So there may
    be more than ``max_len`` steps.
    """

    side = ""

    def __init__(self, model, ops, params, prompts, max_rows, max_len):
        super().__init__(model, ops, params, len(prompts.ids), max_rows, max_len)
        self._prepare(model.layers_of(params, "layers"), has_memory=False)
        self.kv = self.empty_cache(len(self.layers), 0, sum(self.settings.attention.widths(model.d_model)[1:]))
        self.tokens = np.empty(0, np.int64)  # of the entries of the cache
        self.n_in_order = 0  # how many entries, from the first on, are those of one text, one after another
        self.n_needed = 0  # how many of the latest tokens of a row may be read again
        self.begin(prompts)

    def begin(self, prompts):
        """Read prompts, all but the last token of each, and return the decoder, whose next step is the first.

        With max_rows=1, what a prompt has in common with the beginning of all that was read and said is not read again.
        With ``prompts.slide``, a row whose context is full goes on with the latest half of it.
        """
        check_ids(prompts.ids, self.model.vocab, "prompts")
        if not self.model.is_endless:
            prompts = prompts.latest(self.model.max_len)
        lengths = prompts.lengths - 1  # of what is read at once
        B, n = len(lengths), max(lengths, default=0)
        ids = prompts.ids[:, :n]
        n_known = self.n_known(ids[0]) if B == 1 else 0
        self.n_in_order = n_known  # before reading, which may be interrupted
        self._make_room(B * n + BLOCK * self.max_rows)
        if n > n_known:
            self._read(ids, n_known, self.kv)
        self.tokens[: ids.size] = ids.ravel()
        self.is_single_row = B == self.max_rows == 1
        if self.is_single_row:
            self.n_in_order = n
        # Prompts are aligned at their ends, so that the latest positions of all rows are side by side.
        column = np.arange(n) - (n - lengths[:, None])
        self.at = np.arange(B)[:, None] * n + np.maximum(column, 0)
        self.positions = lengths - 1  # of the latest token of each row, counted from the first that the row sees
        self.is_ragged = bool((lengths < n).any())
        self.slide = prompts.slide and not self.model.is_endless
        self.n_needed = self.settings.attention.window or self.model.max_len
        if self.slide:
            self.n_needed = max(self.n_needed, self._n_kept_tokens())
        self.n_prompt_entries, self.sources, self.n_steps = self.at.size, np.arange(B), 0
        return self

    def n_known(self, ids):
        """How many of the first tokens of a prompt need not be read again."""
        known = self.tokens[: self.n_in_order]
        if self.n_steps > self.n_needed:  # entries of the first steps were used again
            known = known[: self.n_prompt_entries]
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known.tolist(), ids, strict=False)))

    def _read(self, ids, first, kv):
        """Compute the keys and values of texts (B, n) from the position ``first`` on, for the first entries of kv."""
        (B, n), window = ids.shape, self.settings.attention.window
        few = B * (n - first) <= FEW_ROWS and window is None
        if few and self.stack_step and is_quantized(self.layers[0]):
            self.ops.device.run_rows(lambda _: self._read_in_a_step(ids, first, kv), 1)
            return
        device = self.ops.device
        if B > 1 or n - first <= FEW_ROWS:
            device.run_rows(lambda texts: self._read_block(ids, slice(first, n), kv, texts), B, n - first)
            return
        for start in range(first, n, READ_AT_ONCE):  # in between, Ctrl-C ends it
            blocks = self._blocks(start, min(start + READ_AT_ONCE, n))
            read_block = lambda block, written: self._read_block(ids, block, kv, written=written)
            in_order(device.run_shards, read_block, blocks)

    def _blocks(self, start, stop):
        """Slices of the positions of one text, with about as many multiplications each."""
        n = stop - start
        n_blocks = 1 if self.ops.device.asynchronous else max(1, min(n_slices(n), n // FEW_ROWS))
        work = np.cumsum(tree.count(self.layers[0]) + 4 * self.model.d_model * np.arange(start, stop))
        edges = start + np.searchsorted(work, work[-1] * np.arange(n_blocks + 1) // n_blocks, side="right")
        return list(starmap(slice, pairwise(edges.tolist())))

    def _read_block(self, ids, block, kv, texts=slice(0, 1), written=None):
        """Compute the keys and values of a block of positions of some texts, of one layer after another."""
        D, settings, n, width = self.model.d_model, self.settings, ids.shape[1], kv.shape[2]
        tokens = beside(ids[texts, block], self.table)
        x = self.model._embed(self.ops, self.tables, self.side, tokens, at=block)[0].reshape(-1, D)
        for i, (layer, of_layer) in enumerate(zip(map(dequantized, self.layers), kv, strict=True), start=1):
            of_texts = of_layer[texts.start * n : texts.stop * n].reshape(-1, n, width)[:, : block.stop]
            cache = BlockCache(of_texts, block.stop - block.start, settings.attention.rotary, written=written)
            if i < len(self.layers):
                x = encoder_layer(self.ops, layer, x, settings, cache=cache)[0]
            else:  # nobody reads its output
                h = normalise(self.ops, layer["attention_norm"], x, settings)[0] if settings.norm == "pre" else x
                self_attention_heads(self.ops, layer["attention"], h, settings.attention, cache=cache)

    def _read_in_a_step(self, ids, first, kv):
        """The same by the function for a step, which takes integers as they are: each position is a row of it."""
        B, n = ids.shape
        columns = np.arange(first, n)[:, None] - np.arange(n)[::-1]  # of all before each position, aligned right
        at = (np.arange(B)[:, None, None] * n + np.maximum(columns, 0)).reshape(-1, n)
        keep_mask, positions = np.tile(columns >= 0, (B, 1))[:, None, None], np.tile(columns[:, -1], B)
        x = self.model._embed(self.ops, self.tables, self.side, ids[:, first:].reshape(1, -1), at=positions)[0][0]
        self._advanced(x, KeyValueCache(kv, at, keep_mask, self.settings.attention.rotary, positions))

    def _make_room(self, n):
        """Grow the cache if it has fewer than n entries."""
        if n > (n_before := self.kv.shape[1]):
            kv = self.empty_cache(len(self.kv), max(n, 2 * n_before), self.kv.shape[2])
            kv[:, :n_before] = self.kv
            self.kv = kv
            self.tokens = np.append(self.tokens, np.zeros(kv.shape[1] - n_before, np.int64))

    def _first_entry(self, t):
        first = self.n_prompt_entries + t % self.n_needed * self.max_rows
        self._make_room(first + self.max_rows)
        return first

    def _check_room(self, parents):
        longest = int(self.positions[parents].max()) + 2
        is_too_long = longest > self.model.max_len and not self.model.is_endless
        if is_too_long and not self.slide:
            raise ValueError(f"a text of {longest} tokens, expected at most max_len={self.model.max_len} of the model")

    def _append(self, tokens, parents):
        super()._append(tokens, parents)
        first = self.at[0, -1]  # the newest entries lie one after another
        self.tokens[first : first + len(tokens)] = tokens
        self.positions = self.positions[parents] + 1
        if self.slide:
            full = np.flatnonzero(self.positions >= self.model.max_len)
            if len(full):
                self._read_kept_tokens(full)
        longest = int(self.positions.max()) + 1
        self.at = self.at[:, -min(longest, self.n_needed) :]

    def _n_kept_tokens(self):
        """How many of the latest tokens a row keeps when its context is full."""
        return max(1, self.model.max_len // 2)

    def _read_kept_tokens(self, rows):
        """Compute the keys and values of the latest tokens of some rows again, as if nothing were before them.

        They are written into the entries that the rows have for these tokens. Rows that share entries share the text up
        to there, so they go on at the same time, and with the same keys and values.
        """
        self.n_in_order, self.is_single_row = 0, False  # the first entries are not of the first positions any more
        n = self._n_kept_tokens()
        self.positions[rows] = n - 1
        self.is_ragged = bool(self.positions.min() < self.positions.max())
        at = self.at[rows, -n:-1]  # the step itself computes the newest token
        if at.size:
            kv = self.empty_cache(len(self.layers), at.size, self.kv.shape[2])
            self._read(self.tokens[at], 0, kv)
            self.kv[:, beside(at, kv)] = kv.reshape(len(kv), *at.shape, -1)

    def _newest(self, tokens, t, part):
        model, ops, table = self.model, self.ops, self.table
        positions = beside(self.positions[part], table)
        x = model._embed(ops, self.tables, self.side, beside(tokens[None], table), at=positions)[0][0]
        at, keep_mask = self.at[part, -(self.settings.attention.window or self.n_needed) :], None
        if self.is_ragged:
            distances = np.arange(at.shape[1])[::-1]  # of the columns from the newest token
            keep_mask = beside((distances <= self.positions[part, None])[:, None, None], table)
        at = beside(np.ascontiguousarray(at), table)
        x = self._advanced(x, KeyValueCache(self.kv, at, keep_mask, self.settings.attention.rotary, positions))
        if model.has_final_norm:
            x, _ = normalise(ops, self.params["layers"]["norm"], x, self.settings)
        if self.is_single_row:
            self.n_in_order += 1
        return x
