"""What the step-by-step decoders of recurrent models have in common: a subclass adds ``_newest``."""

import numpy as np

from npformer.arrays import beside
from npformer.decoding.stepwise import StepwiseDecoder
from npformer.layers.recurrence import read_steps


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
        x, _ = self.model._embed(self.ops, self.tables, "target", beside(tokens[:, None], self.table))
        at = self.n_sources + beside(self.at[part], x)
        came_from = at[:, -2] if t else beside(self.sources[part], x)
        for i, tables in enumerate(self.states):
            first = tuple(table[came_from] for table in tables)
            x, end, _ = read_steps(self.ops, self.params["decoder"][str(i)], x, cell, first=first)
            for table, state in zip(tables, end, strict=True):
                table[at[:, -1]] = state
        return x
