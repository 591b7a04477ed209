"""Step-by-step decoders of the models with recurrent layers."""

import numpy as np

from npformer import layers
from npformer.arrays import beside
from npformer.models.incremental import StepwiseDecoder


class StateDecoder(StepwiseDecoder):
    """A decoder that caches only states: for each layer, the state after each token so far.

    Parameters
    ----------
    model : EncoderDecoder
    ops : Backend
    params : nested dict
    ends : list of tuples of (B, D)
        The initial state of each layer: (h,) or (h, c) of each source.
    max_rows, max_len : int
        Largest number of rows in a step, largest number of steps.
    """

    def __init__(self, model, ops, params, ends, max_rows, max_len):
        self.n_sources = len(ends[0][0])
        super().__init__(model, ops, params, self.n_sources, max_rows, max_len)
        empty_cache = self.empty_cache(max_len * max_rows, model.d_model)
        self.states = [tuple(np.concatenate([first, empty_cache]) for first in layer) for layer in ends]

    def _advance(self, x, t, part, cell):
        """Return the states (R, 1, D) of the last layer after one more input (R, 1, D) of some rows."""
        at = self.n_sources + beside(self.at[part], x)
        came_from = at[:, -2] if t else beside(self.sources[part], x)
        for i, tables in enumerate(self.states):
            first = tuple(table[came_from] for table in tables)
            x, end, _ = layers.read_steps(self.ops, self.params["decoder"][str(i)], x, cell, first=first)
            for table, state in zip(tables, end, strict=True):
                table[at[:, -1]] = state
        return x


class RecurrentDecoder(StateDecoder):
    """The step-by-step decoder of a ``Recurrent``; ``Recurrent.decoder`` makes one."""

    def __init__(self, model, ops, params, src, max_rows, max_len):
        (self.encoder_states, ends), _ = model._encode(ops, params, src)
        self.keep_mask = beside(src, self.encoder_states) != model.pad_id
        super().__init__(model, ops, params, ends, max_rows, max_len)

    def _logits(self, tokens, t, part):
        model, ops, sources = self.model, self.ops, self.sources[part]
        _, table, output = model.tables(self.params)
        x, _ = model._embed(ops, self.params, "target", beside(tokens[:, None], table))
        states = self._advance(x, t, part, model.cell)
        sources = beside(sources, table)
        memory = self.encoder_states[sources], self.keep_mask[sources]
        y, _ = model._combine(ops, self.params["decoder"], states, *memory)
        return ops.linear(y[:, 0], output, self.params["output"]["bias"])


class AutoencoderDecoder(StateDecoder):
    """The step-by-step decoder of a ``SequenceAutoencoder``; ``SequenceAutoencoder.decoder`` makes one."""

    def __init__(self, model, ops, params, src, max_rows, max_len):
        code, _ = model._encode(ops, params, src)
        first, _ = model._start(ops, params, code)
        super().__init__(model, ops, params, [(first,)], max_rows, max_len)

    def _logits(self, tokens, t, part):
        _, table, output = self.model.tables(self.params)
        x, _ = self.model._embed(self.ops, self.params, "target", beside(tokens[:, None], table))
        states = self._advance(x, t, part, "gru")
        return self.ops.linear(states[:, 0], output, self.params["output"]["bias"])
