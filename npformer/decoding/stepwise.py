"""Step-by-step decoding, one token at a time, with a cache of what was computed for the earlier tokens."""

import numpy as np

from npformer import tree
from npformer.arrays import on_host
from npformer.checks import check_ids
from npformer.layers.transformer import decoder_layer, encoder_layer
from npformer.operations.explain import listed
from npformer.quantized import dequantized, floats


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
        self.model, self.ops, self.params = model, ops.unchecked, params
        self.tables = dict(params)  # in the dict that was given, somebody may replace one by a shorter one
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


def _joined(parts):
    """The results of all rows, as NumPy arrays."""
    return np.concatenate(list(map(on_host, parts)))


def listed_step(ops, step, stack, x, cache, memory=None):
    """What ``stack_step`` computes, listed with the bytes of the layers' weights and of what it reads of the caches."""

    def about(x, *caches):
        n_read = sum(c.at.size * c.kv[:, 0].nbytes for c in caches if c is not None)
        n_weights = sum(w.nbytes for layer in stack for _, w in tree.leaves(layer))
        return {"x": x.shape, "at": cache.at.shape}, n_weights + n_read

    return listed(ops, "stack_step", step, about, x, cache, memory)
