"""Step-by-step decoding, one token at a time, with a cache of what was computed for the earlier tokens."""

from itertools import pairwise, starmap, takewhile

import numpy as np

from npformer import tree
from npformer.arrays import beside, on_host
from npformer.layers.cache import BlockCache, KeyValueCache
from npformer.layers.multi_head import self_attention_heads
from npformer.layers.normalisation import normalise
from npformer.layers.projection import project
from npformer.layers.recurrence import read_steps
from npformer.layers.transformer import decoder_layer, encoder_layer
from npformer.models.stack import listed_step
from npformer.operations.explain import listed
from npformer.operations.options import check_ids
from npformer.quantized import dequantized, floats, is_quantized
from npformer.runtime.host import n_slices
from npformer.runtime.threads import FEW_ROWS, in_order

BLOCK = 64  # steps by which a cache grows at least
READ_AT_ONCE = 1024  # positions of a text


class StepwiseDecoder:
    """The base class of the step-by-step decoders of all models.

    Each step appends one token to each row. A row extends any row of the previous step, its parent: a parent may be
    extended by several rows, as in beam search, and finished rows are not extended. What is computed for a token is
    written once to a cache of max_len · max_rows entries and stays in its place; for each row the decoder keeps the
    indices of the entries of its own past.

    A subclass adds ``_newest(tokens, t, part)``: the decoder's output (R, D) for the newest tokens of some rows.
    """

    side = "target"  # whose table has the embeddings

    def __init__(self, model, ops, params, n_sources, max_rows, max_len):
        self.model, self.ops, self.params = model, ops.inside, params
        self.table = floats(model.table_of(params, self.side))
        self.output, prepare = model._stored_output(params), ops.hooks.get("few_rows_linear")
        self.to_logits = prepare and prepare(*self.output, max_rows, max_len)
        self.max_rows, self.max_len = max_rows, max_len
        self.sources = np.arange(n_sources)  # the source of each row
        self.at = np.empty((n_sources, 0), np.int64)  # indices in the cache of the tokens of each row
        self.n_steps = 0

    def step(self, tokens, parents, then=None):
        """Append a token to each row, and return the logits of the token after it.

        Parameters
        ----------
        tokens : (R,) int
            The begin token in the first step.
        parents : (R,) int
            For each row the index of the row of the previous step that it extends; in the first step the index of
            its source.
        then : callable, optional
            ``then(logits, part)`` -> array or tuple of arrays: a function of the logits of a part of the rows, where
            ``part`` is a slice. The threads that compute the parts call it.

        Returns
        -------
        (R, V), or the results of ``then`` for all rows
        """
        if not 0 < len(tokens) == len(parents) <= self.max_rows:
            given = f"{len(tokens)} tokens, {len(parents)} parents"
            raise ValueError(f"{given}: expected equal numbers, from 1 to max_rows={self.max_rows}")
        check_ids(parents, len(self.at), "parents")
        check_ids(tokens, self.model.tgt_vocab, "tokens")
        t = self.n_steps
        self._append(tokens, parents)

        def advance(part):
            logits = self._logits(self._newest(tokens[part], t, part))
            return logits if then is None else then(logits, part)

        results = self.ops.device.run_rows(advance, len(tokens))
        if isinstance(results[0], tuple):
            return tuple(map(_joined, zip(*results, strict=True)))
        return _joined(results)

    def _append(self, tokens, parents):
        """Give the newest token of each row an entry of the cache."""
        self._check_room(parents)
        new_at = self._first_entry(self.n_steps) + np.arange(len(tokens))
        self.at = np.concatenate([self.at[parents], new_at[:, None]], axis=1)
        self.sources = self.sources[parents]
        self.n_steps += 1

    def _check_room(self, parents):
        """Raise an error if one of these rows cannot be extended by one more token."""
        if self.n_steps == self.max_len:
            raise ValueError(f"step {self.n_steps + 1}, expected at most max_len={self.max_len}")

    def _first_entry(self, t):
        """The first of the entries of the cache that are written in step t."""
        return t * self.max_rows

    def _prepare(self, layers, has_memory):
        """Keep the layers, and the function of the backend for a step of all of them, if it has one."""
        prepare, self.settings = self.ops.hooks.get("stack_step"), self.model.layer_settings
        sizes = self.max_rows, self.max_len
        self.layers, self.stack_step = layers, prepare and prepare(layers, self.settings, has_memory, *sizes)

    def _advanced(self, x, cache, memory=None):
        """The output of the layers for the newest token of each row, given the caches of all of them."""
        step, given = self.stack_step, (self.layers, x, cache, memory)
        if step and (y := listed_step(self.ops, step, *given)) is not NotImplemented:
            return y
        self.layers = list(map(dequantized, self.layers))  # once: floats stay as they are
        for i, params in enumerate(self.layers):
            own = cache._replace(kv=cache.kv[i])
            if memory is None:
                x, _ = encoder_layer(self.ops, params, x, self.settings, cache=own)
            else:
                of_memory = memory._replace(kv=memory.kv[i])
                x, _ = decoder_layer(self.ops, params, x, of_memory, self.settings, cache=own)
        return x

    def _logits(self, x):
        """The logits (R, V) of the token after each row, given the output of the layers."""
        W, bias = self.output
        if (y := self._mapped(self.to_logits, x, W)) is not None:
            return y
        self.output = W, bias = dequantized(W), bias  # once: floats stay as they are
        return self.ops.linear(x, W, bias)

    def _mapped(self, apply, x, weight):
        """The linear map of few rows by the function ``few_rows_linear`` of the backend; None without one for them."""
        about = lambda x: ({"x": x.shape, "weight": weight.shape}, x.nbytes + weight.nbytes)
        y = listed(self.ops, "linear", apply, about, x) if apply else NotImplemented
        return None if y is NotImplemented else y

    def empty_cache(self, *shape):
        """An uninitialised array for the cache, on the device of the parameters."""
        return np.empty_like(self.table, shape=shape, dtype=self.table.dtype.newbyteorder("="))


class IncrementalDecoder(StepwiseDecoder):
    """The step-by-step decoder of a ``Transformer``, which caches keys and values; ``decoder`` makes one."""

    def __init__(self, model, ops, params, src, max_rows, max_len):
        super().__init__(model, ops, params, len(src), max_rows, max_len)
        self._prepare(model.layers_of(params, "decoder"), has_memory=True)
        widths = self.settings.attention.widths(model.d_model)
        self.memory_kv = self.empty_cache(len(self.layers), src.size, sum(widths[1:]))  # the same in all steps
        ops.device.run_rows(lambda part: self._read(src, part), *src.shape)
        self.memory_at = np.arange(src.size).reshape(src.shape)  # indices in memory_kv of the words of each source
        self.memory_mask = model._keep_mask(src)
        self.kv = self.empty_cache(len(self.layers), max_len * max_rows, sum(widths[1:]))

    def _read(self, src, part):
        """Compute the keys and values of some sources, for the cross-attention of each layer."""
        S, D = src.shape[1], self.model.d_model
        memory = self.model.encode(self.params, src[part], backend=self.ops).reshape(-1, D)
        for layer, kv in zip(self.layers, self.memory_kv, strict=True):
            kv[part.start * S : part.stop * S] = self._keys_and_values(layer["memory_attention"], memory)

    def _keys_and_values(self, params, memory):
        """Side by side, for the cross-attention of a layer."""
        prepare, packed = self.ops.hooks.get("few_rows_linear"), params.get("kv")
        if prepare and packed and is_quantized(packed) and len(memory) <= FEW_ROWS:
            apply = prepare(packed["weight"], packed.get("bias"), len(memory), 1)
            if (y := self._mapped(apply, memory, packed["weight"])) is not None:
                return y
        return project(self.ops, dequantized(params), memory, ("k", "v"))[0]

    def _newest(self, tokens, t, part):
        model, ops, table = self.model, self.ops, self.table
        x = model._embed(ops, self.params, "target", beside(tokens[:, None], table), at=slice(t, t + 1))[0][:, 0]
        at, sources = beside(np.ascontiguousarray(self.at[part]), table), self.sources[part]
        memory_at = beside(self.memory_at[sources], table)
        memory_mask = None if self.memory_mask is None else beside(self.memory_mask[sources], table)
        cache = KeyValueCache(self.kv, at, rotary=self.settings.attention.rotary)
        x = self._advanced(x, cache, KeyValueCache(self.memory_kv, memory_at, memory_mask))
        if model.has_final_norm:
            x, _ = normalise(ops, self.params["decoder"]["norm"], x, self.settings)
        return x


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
        x = self.model._embed(self.ops, self.params, self.side, tokens, at=block)[0].reshape(-1, D)
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
        x = self.model._embed(self.ops, self.params, self.side, ids[:, first:].reshape(1, -1), at=positions)[0][0]
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
        x = model._embed(ops, self.params, self.side, beside(tokens[None], table), at=positions)[0][0]
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


class StateDecoder(StepwiseDecoder):
    """A decoder that caches only states: for each layer, the state after each token so far.

    ``ends`` has the initial state of each layer: (h,) or (h, c) of each source, (B, D).
    """

    def __init__(self, model, ops, params, ends, max_rows, max_len):
        self.n_sources = len(ends[0][0])
        super().__init__(model, ops, params, self.n_sources, max_rows, max_len)
        empty_cache = self.empty_cache(max_len * max_rows, model.d_model)
        self.states = [tuple(np.concatenate([first, empty_cache]) for first in layer) for layer in ends]

    def _advance(self, tokens, t, part, cell):
        """Return the states (R, 1, D) of the last layer after one more token of some rows."""
        x, _ = self.model._embed(self.ops, self.params, "target", beside(tokens[:, None], self.table))
        at = self.n_sources + beside(self.at[part], x)
        came_from = at[:, -2] if t else beside(self.sources[part], x)
        for i, tables in enumerate(self.states):
            first = tuple(table[came_from] for table in tables)
            x, end, _ = read_steps(self.ops, self.params["decoder"][str(i)], x, cell, first=first)
            for table, state in zip(tables, end, strict=True):
                table[at[:, -1]] = state
        return x


def _joined(parts):
    """The results of all rows, as NumPy arrays."""
    return np.concatenate(list(map(on_host, parts)))
