"""The step-by-step decoder of a ByteNet."""

from functools import partial

from npformer.arrays import kept
from npformer.decoding.stepwise import StepwiseDecoder
from npformer.layers.convolution import residual_conv_block
from npformer.layers.normalisation import layer_norm


class ByteNetDecoder(StepwiseDecoder):
    """The decoder of a ``ByteNet``, which caches the inputs of its convolutions."""

    def __init__(self, model, ops, params, src, max_rows, max_len):
        super().__init__(model, ops, params, len(src), max_rows, max_len)
        # Of the encoder, the same in all steps.
        self.columns = self.empty_cache(len(src), max_len, model.d_model)
        ops.device.run_rows(lambda part: self._read(src, part), *src.shape)
        self.blocks = [params["decoder"][str(i)] for i in range(model.depths[1])]
        self.inputs = self.empty_cache(len(self.blocks), max_len * max_rows, model.d_model // 2)

    def _read(self, src, part):
        """Compute the columns of some sources for all steps."""
        memory = self.model.encode(self.params, src[part], backend=self.ops)
        self.columns[part], _ = self.model.columns(
            self.ops, self.params, memory, src[part], self.max_len
        )

    def _newest(self, tokens, t, part):
        tokens = self.beside(tokens[:, None])
        at = self.beside(self.at[part])
        sources = self.beside(self.sources[part])
        x = self.embed(tokens)[:, 0] + self.columns[sources, t]
        keep_mask = tokens != self.model.pad_id
        for i, (block, inputs) in enumerate(zip(self.blocks, self.inputs, strict=True)):
            dilation = self.model.dilation(i)
            convolve = partial(self._convolve, block["conv"], inputs, at, keep_mask, dilation)
            x, _ = residual_conv_block(self.ops, block, x, convolve)
        return layer_norm(self.ops, self.params["decoder"]["norm"], x)[0]

    def _convolve(self, params, inputs, at, keep_mask, dilation, h):
        """The newest output of a causal ``masked_conv1d``, from its newest and cached inputs."""
        inputs[at[:, -1]] = kept(keep_mask, h)
        weight = params["weight"]
        # Every dilation-th position from the newest one back; before the first token there is none,
        # so the first taps have nothing to see.
        backwards = at[:, ::-dilation]
        taps = backwards[:, : len(weight)][:, ::-1]
        window = inputs[taps].reshape(len(at), -1)
        weight = weight[-taps.shape[1] :].reshape(window.shape[1], -1)
        return self.ops.linear(window, weight, params["bias"]), None
