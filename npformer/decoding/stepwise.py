"""Step-by-step decoding, token by token, with a cache of what was computed for earlier ones."""

import numpy as np

from npformer.arrays import beside, on_host
from npformer.checks import check_ids
from npformer.decoding.few_rows import FewRowsLinear
from npformer.errors import UserError
from npformer.quantized import floats


class StepwiseDecoder:
    """The base class of the step-by-step decoders of all models.

    Each step appends one token to each row. A row extends any row of the previous step, its parent:
    a parent may be extended by several rows, as in beam search, and finished rows are not extended.
    What is computed for a token is written once to a cache of max_len · max_rows entries and stays
    in its place; for each row the decoder keeps the indices of the entries of its own past.

    A subclass adds ``_newest``.
    """

    side = "target"  # whose table has the embeddings

    def __init__(self, model, ops, params, n_sources, max_rows, max_len):
        self.model = model
        self.ops = ops.unchecked
        self.params = params
        # A copy: in the dict of the caller, somebody may replace a table by a shorter one.
        self.tables = dict(params)
        # Has the dtype and the device of caches.
        self.like = floats(model.table_of(params, self.side))
        output = model.stored_output(params)
        self.to_logits = FewRowsLinear(self.ops, *output, max_rows, max_len)
        self.max_rows = max_rows
        self.max_len = max_len
        self._begin_with(np.empty((n_sources, 0), np.int64))

    def _begin_with(self, at):
        """Let there be a row for each source, and no step yet."""
        self.at = at  # the entries of the cache that each row has: (rows, n)
        self.sources = np.arange(len(at))  # the source of each row
        self.n_steps = 0

    def step(self, tokens, parents, then=None):
        """Append a token to each row, and return the logits of the token after it.

        Parameters
        ----------
        tokens : (R,) int
            The begin token in the first step.
        parents : (R,) int
            For each row the index of the row of the previous step that it extends; in the first
            step the index of its source.
        then : callable, optional
            ``then(logits, part)`` -> array or tuple of arrays: a function of the logits of a part
            of the rows, where ``part`` is a slice. The threads that compute the parts call it.

        Returns
        -------
        (R, V), or the results of ``then`` for all rows
        """
        if not 0 < len(tokens) == len(parents) <= self.max_rows:
            numbers = f"{len(tokens)} tokens, {len(parents)} parents"
            raise UserError(
                f"{numbers}: expected equal numbers, from 1 to max_rows={self.max_rows}"
            )
        check_ids(parents, len(self.at), "parents")
        check_ids(tokens, self.model.tgt_vocab, "tokens")
        t = self.n_steps
        self._append(tokens, parents)

        def advance(part):
            logits = self.to_logits(self._newest(tokens[part], t, part))
            return logits if then is None else then(logits, part)

        results = self.ops.device.run_rows(advance, len(tokens))
        # ``then`` may return several arrays, as the best tokens and their probabilities.
        if isinstance(results[0], tuple):
            return tuple(_joined(parts) for parts in zip(*results, strict=True))
        return _joined(results)

    def _newest(self, tokens, t, part):
        """The decoder's output (R, D) for the newest tokens of a part of the rows, in step t."""
        raise NotImplementedError

    def _append(self, tokens, parents):
        """Give the newest token of each row an entry of the cache: ``max_rows`` are of a step."""
        if self.n_steps == self.max_len:
            raise UserError(f"step {self.n_steps + 1}, expected at most max_len={self.max_len}")
        self._extend(parents, first=self.n_steps * self.max_rows)

    def _extend(self, parents, first):
        """Let rows extend their parents, with the entries of the cache from ``first`` on."""
        new_at = first + np.arange(len(parents))
        self.at = np.concatenate([self.at[parents], new_at[:, None]], axis=1)
        self.sources = self.sources[parents]
        self.n_steps += 1

    def embed(self, tokens, at=None):
        """The vectors of tokens (B, T), at the positions ``at`` if these are not the first ones."""
        x, _ = self.model.embed(self.ops, self.tables, self.side, self.beside(tokens), at=at)
        return x

    def beside(self, x):
        """An array on the device of the parameters."""
        return beside(x, self.like)

    def empty_cache(self, *shape):
        """An uninitialised array for the cache, on the device of the parameters."""
        return np.empty_like(self.like, shape=shape, dtype=self.like.dtype.newbyteorder("="))


def _joined(parts):
    """The results of all rows, as NumPy arrays."""
    return np.concatenate([on_host(part) for part in parts])
