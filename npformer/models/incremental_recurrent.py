"""Step-by-step decoders of the models with recurrent layers."""

import numpy as np

from npformer import layers
from npformer.arrays import beside
from npformer.models.incremental import StepwiseDecoder


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
            x, end, _ = layers.read_steps(self.ops, self.params["decoder"][str(i)], x, cell, first=first)
            for table, state in zip(tables, end, strict=True):
                table[at[:, -1]] = state
        return x


class RecurrentDecoder(StateDecoder):
    """The step-by-step decoder of a ``Recurrent``; ``decoder`` makes one."""

    def __init__(self, model, ops, params, src, max_rows, max_len):
        (self.encoder_states, ends), _ = model._encode(ops, params, src)
        self.keep_mask = beside(src, self.encoder_states) != model.pad_id
        super().__init__(model, ops, params, ends, max_rows, max_len)

    def _newest(self, tokens, t, part):
        states, sources = self._advance(tokens, t, part, self.model.cell), beside(self.sources[part], self.table)
        memory = self.encoder_states[sources], self.keep_mask[sources]
        return self.model._combine(self.ops, self.params["decoder"], states, *memory)[0][:, 0]


class AutoencoderDecoder(StateDecoder):
    """The step-by-step decoder of a ``SequenceAutoencoder``; ``decoder`` makes one."""

    def __init__(self, model, ops, params, src, max_rows, max_len):
        code, _ = model._encode(ops, params, src)
        first, _ = model._start(ops, params, code)
        super().__init__(model, ops, params, [(first,)], max_rows, max_len)

    def _newest(self, tokens, t, part):
        return self._advance(tokens, t, part, "gru")[:, 0]
