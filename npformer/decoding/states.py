"""What the step-by-step decoders of recurrent models have in common: a subclass adds ``_newest``."""

import numpy as np

from npformer.decoding.stepwise import StepwiseDecoder
from npformer.layers.recurrence import read_steps


class StateDecoder(StepwiseDecoder):
    """A decoder that caches only states: for each layer, the state after each token so far.

    ``ends`` has the initial state of each layer: (h,) or (h, c) of each source, (B, D).
    """

    def __init__(self, model, ops, params, ends, max_rows, max_len):
        self.n_sources = len(ends[0][0])
        super().__init__(model, ops, params, self.n_sources, max_rows, max_len)
        empty = self.empty_cache(max_len * max_rows, model.d_model)
        self.states = [tuple(np.concatenate([end, empty]) for end in layer) for layer in ends]

    def _advance(self, tokens, t, part, cell):
        """Return the states (R, 1, D) of the last layer after one more token of some rows."""
        x = self.embed(tokens[:, None])
        at = self.n_sources + self.beside(self.at[part])
        before = at[:, -2] if t else self.beside(self.sources[part])
        for i, states in enumerate(self.states):
            params = self.params["decoder"][str(i)]
            first = tuple(state[before] for state in states)
            x, end, _ = read_steps(self.ops, params, x, cell, first=first)
            for state, newest in zip(states, end, strict=True):
                state[at[:, -1]] = newest
        return x
