"""The step-by-step decoder of an encoder-decoder Transformer."""

import numpy as np

from npformer.arrays import beside
from npformer.decoding.stepwise import StepwiseDecoder
from npformer.layers.cache import KeyValueCache
from npformer.layers.normalisation import normalise
from npformer.layers.projection import project
from npformer.quantized import dequantized, is_quantized
from npformer.runtime.threads import FEW_ROWS


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
        x = model._embed(ops, self.tables, "target", beside(tokens[:, None], table), at=slice(t, t + 1))[0][:, 0]
        at, sources = beside(np.ascontiguousarray(self.at[part]), table), self.sources[part]
        memory_at = beside(self.memory_at[sources], table)
        memory_mask = None if self.memory_mask is None else beside(self.memory_mask[sources], table)
        cache = KeyValueCache(self.kv, at, rotary=self.settings.attention.rotary)
        x = self._advanced(x, cache, KeyValueCache(self.memory_kv, memory_at, memory_mask))
        if model.has_final_norm:
            x, _ = normalise(ops, self.params["decoder"]["norm"], x, self.settings)
        return x
