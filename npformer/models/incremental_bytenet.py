"""The step-by-step decoder of ByteNet."""

from functools import partial

from npformer.arrays import beside, kept
from npformer.layers import layer_norm, residual_conv_block
from npformer.models.incremental import StepwiseDecoder


class IncrementalByteNet(StepwiseDecoder):
    """The step-by-step decoder of a ``ByteNet``, which caches the inputs of its convolutions; ``decoder`` makes one."""

    def __init__(self, model, ops, params, src, max_rows, max_len):
        super().__init__(model, ops, params, len(src), max_rows, max_len)
        self.columns = self.empty_cache(len(src), max_len, model.d_model)  # of the encoder, the same in all steps
        ops.device.run_rows(lambda part: self._read(src, part), *src.shape)
        self.blocks = [params["decoder"][str(i)] for i in range(model.depths[1])]
        self.seen = self.empty_cache(len(self.blocks), max_len * max_rows, model.d_model // 2)

    def _read(self, src, part):
        """Compute the columns of some sources for all steps."""
        memory = self.model.encode(self.params, src[part], backend=self.ops)
        columns, _ = self.model.columns(self.ops, self.params, memory, src[part], self.max_len)
        self.columns[part] = columns

    def _newest(self, tokens, t, part):
        model, ops = self.model, self.ops
        tokens, at, sources = (beside(x, self.table) for x in (tokens[:, None], self.at[part], self.sources[part]))
        words, _ = model._embed(ops, self.params, "target", tokens)
        x, keep_mask = words[:, 0] + self.columns[sources, t], tokens != model.pad_id
        for i, (block, seen) in enumerate(zip(self.blocks, self.seen, strict=True)):
            convolve = partial(self._convolve, block["conv"], seen, at, keep_mask, model.dilation(i))
            x, _ = residual_conv_block(ops, block, x, convolve)
        return layer_norm(ops, self.params["decoder"]["norm"], x)[0]

    def _convolve(self, params, seen, at, keep_mask, dilation, h):
        """The newest output of a causal ``masked_conv1d``, from the newest input and the cached ones."""
        seen[at[:, -1]] = kept(keep_mask, h)
        taps = at[:, ::-dilation][:, : len(params["weight"])][:, ::-1]  # none before the first token
        window = seen[taps].reshape(len(at), -1)
        weight = params["weight"][-taps.shape[1] :].reshape(window.shape[1], -1)
        return self.ops.linear(window, weight, params["bias"]), None
