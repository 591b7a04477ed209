"""The encoder-decoder Transformer (Vaswani et al. 2017, "Attention is all you need")."""

from dataclasses import dataclass

import numpy as np

from npformer.arrays import Array
from npformer.backends import AnyBackend
from npformer.checks import check_shape
from npformer.decoding.translation import TranslationDecoder
from npformer.errors import UserError
from npformer.layers.stack import Stack
from npformer.layers.transformer import decoder_layer
from npformer.models.encoder_decoder import EncoderDecoder, check_depths, of_both
from npformer.models.stack import TransformerModel
from npformer.models.watching import watched
from npformer.operations.options import names_checked
from npformer.quantized import dequantized
from npformer.reference.math.random import keys_from
from npformer.runtime.forks import cached_property


@dataclass(frozen=True, repr=False)
class SourceAndTarget:
    """The first fields of a ``Transformer``, of which this is the last base class with fields."""

    src_vocab: int
    tgt_vocab: int


@names_checked
@dataclass(frozen=True, repr=False)
class Transformer(TransformerModel, SourceAndTarget, EncoderDecoder):
    """An encoder-decoder Transformer: the architecture only; parameters are a separate nested dict.

    Parameters
    ----------
    src_vocab, tgt_vocab : int
        Vocabulary sizes V.
    {settings}
    forced_eos_id : int, optional
        The token with which decoding ends a target that reaches ``max_len``, whatever its
        probability, as that of a Marian of the library transformers is ended. Its log-probability
        counts as 0. None: the target is cut.

    Examples
    --------
    >>> model = Transformer(src_vocab=11, tgt_vocab=11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    >>> params = model.init(seed=0)
    >>> src, tgt = np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]])
    >>> model.logits(params, src, tgt[:, :-1]).shape
    (1, 4, 11)
    >>> loss, grads, n_tokens = model.loss_and_grad(params, src, tgt, dropout_key=1)
    >>> grads["encoder"]["0"]["attention"]["qkv"]["weight"].shape, n_tokens
    ((16, 48), 4)
    """

    forced_eos_id: int | None = None

    decoder_type = TranslationDecoder

    def __post_init__(self):
        self._set(n_layers=check_depths("n_layers", self.n_layers))
        self._check_settings()
        end = self.forced_eos_id
        if end is not None and (not 0 <= end < self.tgt_vocab or end == self.pad_id):
            expected = "an id of the target's vocabulary, and not the padding's"
            raise UserError(f"forced_eos_id={end}, expected {expected}")

    @cached_property
    def depths(self):
        """Layers of (encoder, decoder)."""
        return of_both(self.n_layers)

    def attention_weights(
        self, params: dict, src: Array, tgt_in: Array, *, backend: AnyBackend = "auto"
    ) -> dict:
        """Return the attention weights of each layer.

        Returns
        -------
        dict of lists of NumPy arrays, one for each layer
            "encoder" (B, H, S, S), "decoder" (B, H, T, T), and "memory" (B, H, T, S), the
            cross-attention.
        """
        weights: list[Array] = []
        ops = watched(self._backend(backend, params), weights)
        src, tgt_in = self._inputs(params, src, tgt_in)
        memory, _ = self._encode(ops, params, src)
        self._decode(ops, params, memory, src, tgt_in)
        n = self.depths[0]
        # After those of the encoder, two for each layer of the decoder: of itself, of the memory.
        return {"encoder": weights[:n], "decoder": weights[n::2], "memory": weights[n + 1 :: 2]}

    def _init_stacks(self, new):
        return [self._new_stack(new, name) for name in self.stacks]

    def _decode(self, ops, params, memory, src, tgt_in, dropout_key=None, with_grad=False):
        check_shape(memory=(memory, (*src.shape, self.d_model)))
        names = self._names_of_layers["decoder"]
        layers = self.layers_of(params, "decoder")
        settings = self._settings_with(dropout_key)
        keep_mask = self.keep_mask(tgt_in)
        memory_keep_mask = self.keep_mask(src)
        embedding_key, *keys = keys_from(dropout_key, 1 + len(layers))

        x, embed_backward = self.embed(ops, params, "target", tgt_in, embedding_key)
        ops = ops.unchecked  # as in ``_encode``
        stack = Stack(with_grad)
        for layer, key in zip(map(dequantized, layers), keys, strict=True):
            x, backward = decoder_layer(
                ops, layer, x, memory, settings, keep_mask, memory_keep_mask, dropout_key=key
            )
            stack.keep(backward)
        y, norm_backward = self.stack_output(ops, params, "decoder", x)

        def decode_backward(dy, gradients):
            dx = norm_backward(dy, gradients)
            dmemory = np.zeros_like(memory)  # each layer adds its part
            for i, backward in stack.backwards():
                dx, dmemory_of_layer, grads = backward(dx)
                dmemory += dmemory_of_layer
                gradients.give(f"decoder.{names[i]}", grads)
            embed_backward(dx, gradients)
            return dmemory

        return y, decode_backward
