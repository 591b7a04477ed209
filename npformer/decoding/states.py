"""The step-by-step decoders of recurrent models, which cache nothing but states."""

import numpy as np

from npformer.arrays import beside
from npformer.decoding.stepwise import StepwiseDecoder
from npformer.layers.recurrence import read_steps


class StateDecoder(StepwiseDecoder):
    """The base class of both decoders: for each layer it keeps the state after each token so far.

    ``ends`` has the initial state of each layer: (h,) or (h, c) of each source, (B, D).
    """

    def __init__(self, model, ops, params, ends, max_rows, max_len):
        self.n_sources = len(ends[0][0])
        super().__init__(model, ops, params, self.n_sources, max_rows, max_len)
        empty = self.empty_cache(max_len * max_rows, model.d_model)
        # The entries of the tokens come after the initial states of the sources.
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


class RecurrentDecoder(StateDecoder):
    """The step-by-step decoder of a ``Recurrent``."""

    def __init__(self, model, ops, params, src, max_rows, max_len):
        self.encoder_states, ends = model.encode(params, src, backend=ops)
        self.keep_mask = beside(src, self.encoder_states) != model.pad_id
        super().__init__(model, ops, params, ends, max_rows, max_len)

    def _newest(self, tokens, t, part):
        states = self._advance(tokens, t, part, self.model.cell)
        sources = self.beside(self.sources[part])
        y, _ = self.model.combine(
            self.ops,
            self.params["decoder"],
            states,
            self.encoder_states[sources],
            self.keep_mask[sources],
        )
        return y[:, 0]


class AutoencoderDecoder(StateDecoder):
    """The step-by-step decoder of a ``SequenceAutoencoder``."""

    def __init__(self, model, ops, params, src, max_rows, max_len):
        code = model.encode(params, src, backend=ops)
        first, _ = model.first_state(ops, params, code)
        super().__init__(model, ops, params, [(first,)], max_rows, max_len)

    def _newest(self, tokens, t, part):
        return self._advance(tokens, t, part, "gru")[:, 0]
