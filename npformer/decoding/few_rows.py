"""The parts of a step of decoding for which a backend may have a kernel, as a step has few rows."""

from npformer import tree
from npformer.layers.normalisation import normalise
from npformer.layers.transformer import decoder_layer, encoder_layer
from npformer.operations.explain import listed
from npformer.quantized import dequantized


class FewRowsLinear:
    """A linear map of few rows, by the function ``few_rows_linear`` of the backend if it has one for the weight."""

    def __init__(self, ops, weight, bias, max_rows, n_steps):
        self.ops, self.weight, self.bias = ops, weight, bias
        prepare = ops.hooks.get("few_rows_linear")
        self.kernel = prepare and prepare(weight, bias, max_rows, n_steps)

    def __call__(self, x):
        """x W + b, for x (R, D_in)."""
        if self.kernel is not None:
            y = listed(self.ops, "linear", self.kernel, self._about, x)
            if y is not NotImplemented:
                return y
        self.weight = dequantized(self.weight)  # once: floats stay as they are
        return self.ops.linear(x, self.weight, self.bias)

    def _about(self, x):
        return {"x": x.shape, "weight": self.weight.shape}, x.nbytes + self.weight.nbytes


class StackStep:
    """The layers of a stack for one position of each row, by ``stack_step`` of the backend if it has this function.

    The caches are those of all layers: the first axis of their ``kv`` are the layers. Without a memory the layers are
    those of an encoder.
    """

    def __init__(self, ops, model, params, name, max_rows, n_steps, has_memory=False):
        self.ops = ops
        self.settings = model.layer_settings
        self.layers = model.layers_of(params, name)
        self.norm = params[name]["norm"] if model.has_final_norm else None
        self.kv_width = sum(self.settings.attention.widths(model.d_model)[1:])
        prepare = ops.hooks.get("stack_step")
        sizes = max_rows, n_steps
        self.kernel = prepare and prepare(self.layers, self.settings, has_memory, *sizes)

    def __call__(self, x, cache, memory=None):
        """The output (R, D) of the stack for x (R, D), whose keys and values are written into the cache."""
        y = self.by_kernel(x, cache, memory)
        if y is NotImplemented:
            y = self._by_layers(x, cache, memory)
        return self.normalised(y)

    def by_kernel(self, x, cache, memory=None):
        """The output of the last layer by the function of the backend, or ``NotImplemented``."""
        if self.kernel is None:
            return NotImplemented
        return listed(self.ops, "stack_step", self.kernel, self._about, x, cache, memory)

    def _about(self, x, cache, memory):
        caches = [cache] if memory is None else [cache, memory]
        n_read = sum(c.at.size * c.kv[:, 0].nbytes for c in caches)
        n_weights = sum(w.nbytes for layer in self.layers for _, w in tree.leaves(layer))
        return {"x": x.shape, "at": cache.at.shape}, n_weights + n_read

    def _by_layers(self, x, cache, memory):
        self.layers = list(map(dequantized, self.layers))  # once: floats stay as they are
        for i, params in enumerate(self.layers):
            own = cache._replace(kv=cache.kv[i])
            if memory is None:
                x, _ = encoder_layer(self.ops, params, x, self.settings, cache=own)
            else:
                of_memory = memory._replace(kv=memory.kv[i])
                x, _ = decoder_layer(self.ops, params, x, of_memory, self.settings, cache=own)
        return x

    def normalised(self, x):
        """The output of the stack, given that of its last layer."""
        return x if self.norm is None else normalise(self.ops, self.norm, x, self.settings)[0]
