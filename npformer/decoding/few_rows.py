"""The parts of a step of decoding for which a backend may have a kernel, as a step has few rows."""

from npformer import tree
from npformer.layers.decoding import decode_layer
from npformer.operations.explain import explained_hook
from npformer.quantized import dequantized, is_quantized
from npformer.runtime.threads import FEW_ROWS


def takes_integers(params, n_rows):
    """Whether so many rows are better multiplied by 8-bit integers than by the floats of them.

    A backend's functions for few rows read integers as they are.
    """
    return n_rows <= FEW_ROWS and is_quantized(params)


class FewRowsLinear:
    """A linear map of few rows, by ``few_rows_linear`` of the backend, if it has this function."""

    def __init__(self, ops, weight, bias, max_rows, n_steps):
        self.ops = ops
        self.weight = weight
        self.bias = bias
        prepare = ops.hooks.get("few_rows_linear")
        self.kernel = prepare and prepare(weight, bias, max_rows, n_steps)

    def __call__(self, x):
        """x W + b, for x (R, D_in)."""
        if self.kernel is not None:
            y = explained_hook(self.ops, "linear", self.kernel, self._about, x)
            if y is not NotImplemented:
                return y
        # Kept for later calls. Threads that are here at the same time make the floats each.
        self.weight = dequantized(self.weight)
        return self.ops.linear(x, self.weight, self.bias)

    def _about(self, x):
        return {"x": x.shape, "weight": self.weight.shape}, x.nbytes + self.weight.nbytes


class StackStep:
    """The layers of a stack for one position of each row, by the backend's ``stack_step``, if any.

    The caches are those of all layers: the first axis of their ``kv`` are the layers. Without a
    memory the layers are those of an encoder.
    """

    def __init__(self, ops, layers, settings, max_rows, n_steps, has_memory=False):
        self.ops = ops
        self.layers = layers
        self.settings = settings
        prepare = ops.hooks.get("stack_step")
        self.kernel = prepare and prepare(layers, settings, has_memory, max_rows, n_steps)

    def __call__(self, x, cache, memory=None):
        """The output (R, D) of the last layer for x (R, D); keys and values go into the cache."""
        if self.kernel is not None:
            y = explained_hook(self.ops, "stack_step", self.kernel, self._about, x, cache, memory)
            if y is not NotImplemented:
                return y
        self.layers = list(map(dequantized, self.layers))  # as in FewRowsLinear
        for i, params in enumerate(self.layers):
            of_layer = cache._replace(kv=cache.kv[i])
            of_memory = None if memory is None else memory._replace(kv=memory.kv[i])
            x = decode_layer(self.ops, params, x, self.settings, of_layer, of_memory)
        return x

    def _about(self, x, cache, memory):
        caches = [cache] if memory is None else [cache, memory]
        n_read = sum(c.at.size * c.kv[:, 0].nbytes for c in caches)
        n_weights = sum(w.nbytes for layer in self.layers for _, w in tree.leaves(layer))
        return {"x": x.shape, "at": cache.at.shape}, n_weights + n_read
