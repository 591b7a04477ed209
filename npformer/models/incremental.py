"""Decoders a token at a time: what earlier tokens have computed is kept, not computed again."""

from functools import partial

import numpy as np

from npformer.arrays import beside, on_host
from npformer.layers import layer_norm
from npformer.options import check_ids
from npformer.reference import padding_mask
from npformer.reference.decoding import composed_step


class StepwiseDecoder:
    """A decoder on a growing target: what the decoders of all models share.

    Each step appends one token to each of its rows. A row goes on from any row of the step before: beams part, and
    rows that are finished are simply not gone on from. What all tokens have computed stays where it was written, in
    tables of max_len · max_rows entries; each row knows where that of its own past is.

    A model's own decoder adds ``_logits(tokens, t, part)``: those after the newest tokens of a part of the rows.

    Parameters
    ----------
    model : EncoderDecoder
    ops : module
    params : nested dict
    n_sources : int
    max_rows : int
        Most rows of a step.
    max_len : int
        Most steps.
    """

    def __init__(self, model, ops, params, n_sources, max_rows, max_len):
        self.model, self.ops, self.params = model, ops, params
        self.max_rows, self.max_len = max_rows, max_len
        self.sources = np.arange(n_sources)  # whose target each row is
        self.at = np.empty((n_sources, 0), np.int64)  # where in the tables the tokens of each row are
        self.n_steps = 0

    def step(self, tokens, parents, then=None):
        """Append a token to each row.

        Parameters
        ----------
        tokens : (R,) int
            The begin token in the first step.
        parents : (R,) int
            Which row of the step before each row goes on from; in the first step which source.
        then : callable, optional
            ``then(logits, part)`` -> array or tuple of arrays: what is wanted of the logits (of the token after these)
            of a part of the rows, a slice. Threads that compute the parts do this, too.

        Returns
        -------
        (R, V), or what ``then`` gives for all rows
        """
        check_step(self, tokens, parents, n_rows=len(self.at))
        t = self.n_steps
        new_at = t * self.max_rows + np.arange(len(tokens))
        self.at = np.concatenate([self.at[parents], new_at[:, None]], axis=1)
        self.sources = self.sources[parents]
        self.n_steps += 1

        def advance(part):
            logits = self._logits(tokens[part], t, part)
            return logits if then is None else then(logits, part)

        results = self.ops.run_rows(advance, len(tokens))
        if isinstance(results[0], tuple):
            return tuple(map(_joined, zip(*results, strict=True)))
        return _joined(results)

    def empty_cache(self, *shape):
        """An array for what is kept, where the parameters are; its numbers are still to be written."""
        return np.empty_like(self.model.tables(self.params)[1], shape=shape)


class IncrementalDecoder(StepwiseDecoder):
    """The decoder of a ``Transformer``, which keeps keys and values; ``Transformer.decoder`` makes one.

    Parameters
    ----------
    model : Transformer
    ops : module
    params : nested dict
    src : (B, S) int
    max_rows, max_len : int
        Most rows of a step, most steps.
    """

    def __init__(self, model, ops, params, src, max_rows, max_len):
        super().__init__(model, ops, params, len(src), max_rows, max_len)
        self.layers = [params["decoder"][str(i)] for i in range(model.depths[1])]
        self.memory_kv = self.empty_cache(len(self.layers), src.size, 2 * model.d_model)  # once for all steps
        ops.run_rows(lambda part: self._read(src, part), *src.shape)
        self.memory_at = np.arange(src.size).reshape(src.shape)  # where in it the words of each source are
        self.memory_mask = padding_mask(src, model.pad_id)[:, 0, 0]
        self.kv = self.empty_cache(len(self.layers), max_len * max_rows, 2 * model.d_model)
        step = getattr(ops, "decoder_layer_step", None)
        is_one_kernel = step is not None and step.kernel.function is not None
        self.layer_step = step if is_one_kernel else partial(composed_step, ops)

    def _read(self, src, part):
        """Keys and values of some sources, for the cross-attention of each layer."""
        memory = self.model.encode(self.params, src[part], backend=self.ops)
        S = src.shape[1]
        for layer, kv in zip(self.layers, self.memory_kv, strict=True):
            weights = layer["memory_attention"]["kv"]
            projected = self.ops.linear(memory, weights["weight"], weights["bias"])
            kv[part.start * S : part.stop * S] = projected.reshape(-1, kv.shape[1])

    def _logits(self, tokens, t, part):
        model, ops = self.model, self.ops
        _, table, output = model.tables(self.params)
        positions = model.positions_beside(table)[t : t + 1]
        x = ops.embed_tokens(beside(tokens[:, None], table), table, positions, model.pad_id)[:, 0]
        at, sources = beside(np.ascontiguousarray(self.at[part]), table), self.sources[part]
        memory_at, memory_mask = (beside(known[sources], table) for known in (self.memory_at, self.memory_mask))
        options = {"n_heads": model.n_heads, "norm": model.norm, "activation": model.activation}
        for layer, kv, memory_kv in zip(self.layers, self.kv, self.memory_kv, strict=True):
            x = self.layer_step(x, layer, kv, at, memory_kv, memory_at, memory_mask, **options)
        if model.norm == "pre":
            x, _ = layer_norm(ops, self.params["decoder"]["norm"], x)
        return ops.linear(x, output, self.params["output"]["bias"])


def check_step(decoder, tokens, parents, n_rows):
    """A token for each row, and which of the ``n_rows`` rows before each goes on from."""
    if not 0 < len(tokens) == len(parents) <= decoder.max_rows:
        given = f"{len(tokens)} tokens, {len(parents)} parents"
        raise ValueError(f"{given}: expected as many, at most max_rows={decoder.max_rows}")
    check_ids(parents, n_rows, "parents")
    if decoder.n_steps == decoder.max_len:
        raise ValueError(f"step {decoder.n_steps + 1}, expected at most max_len={decoder.max_len}")


def _joined(parts):
    """Of all rows, in ordinary memory."""
    return np.concatenate(list(map(on_host, parts)))
