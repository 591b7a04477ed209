"""The step-by-step decoder of an encoder-decoder Transformer."""

import numpy as np

from npformer.decoding.few_rows import FewRowsLinear, StackStep, takes_integers
from npformer.decoding.stepwise import StepwiseDecoder
from npformer.layers.cache import KeyValueCache
from npformer.quantized import dequantized


class TranslationDecoder(StepwiseDecoder):
    """The step-by-step decoder of a ``Transformer``, which caches keys and values."""

    def __init__(self, model, ops, params, src, max_rows, max_len):
        super().__init__(model, ops, params, len(src), max_rows, max_len)
        layers = model.layers_of(params, "decoder")
        self.stack = StackStep(
            self.ops, layers, model.layer_settings, max_rows, max_len, has_memory=True
        )
        # Of the sources, the same in all steps.
        self.memory_kv = self.empty_cache(len(layers), src.size, model.kv_width)
        ops.device.run_rows(lambda part: self._read(src, part), *src.shape)
        # Entries of the words of each source.
        self.memory_at = np.arange(src.size).reshape(src.shape)
        self.memory_mask = model.keep_mask(src)
        self.kv = self.empty_cache(len(layers), max_len * max_rows, model.kv_width)

    def _read(self, src, part):
        """Compute the keys and values of some sources, for the cross-attention of each layer."""
        S = src.shape[1]
        memory = self.model.encode(self.params, src[part], backend=self.ops)
        memory = memory.reshape(-1, self.model.d_model)
        entries = slice(part.start * S, part.stop * S)
        for layer, kv in zip(self.stack.layers, self.memory_kv, strict=True):
            kv[entries] = self._mapped(memory, **layer["memory_attention"]["kv"])

    def _mapped(self, memory, weight, bias=None):
        """A linear map of the memory, which takes integers as they are if it has few rows."""
        if takes_integers(weight, len(memory)):
            return FewRowsLinear(self.ops, weight, bias, len(memory), n_steps=1)(memory)
        return self.ops.linear(memory, dequantized(weight), bias)

    def _newest(self, tokens, t, part):
        x = self.embed(tokens[:, None], at=slice(t, t + 1))[:, 0]
        at = self.beside(np.ascontiguousarray(self.at[part]))
        cache = KeyValueCache(self.kv, at, rotary=self.stack.settings.attention.rotary)
        memory = self._memory(self.sources[part])
        x = self.stack(x, cache, memory)
        y, _ = self.model.stack_output(self.ops, self.tables, "decoder", x)
        return y

    def _memory(self, sources):
        """The keys and values of the source of each row."""
        at = self.beside(self.memory_at[sources])
        keep_mask = self.memory_mask
        if keep_mask is not None:
            keep_mask = self.beside(keep_mask[sources])
        return KeyValueCache(self.memory_kv, at, keep_mask)
