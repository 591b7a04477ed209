"""The encoder-decoder Transformer (Vaswani et al. 2017, "Attention is all you need")."""

from dataclasses import dataclass

import numpy as np

from npformer.arrays import Array
from npformer.backends import AnyBackend
from npformer.checks import check_shape
from npformer.decoding.translation import TranslationDecoder
from npformer.layers.stack import Stack
from npformer.layers.transformer import decoder_layer
from npformer.models.encoder_decoder import EncoderDecoder, check_depths
from npformer.models.stack import TransformerSettings
from npformer.models.watching import watched
from npformer.quantized import dequantized
from npformer.reference import split_key


@dataclass(frozen=True, repr=False)
class SourceAndTarget:
    """The fields that come before the others."""

    src_vocab: int
    tgt_vocab: int


@dataclass(frozen=True, repr=False)
class Transformer(TransformerSettings, SourceAndTarget, EncoderDecoder):
    """An encoder-decoder Transformer: the architecture only; parameters are a separate nested dict.

    Parameters
    ----------
    src_vocab, tgt_vocab : int
        Vocabulary sizes V.
    {settings}
    forced_eos_id : int, optional
        The token with which decoding ends a target that reaches ``max_len``, whatever its probability, as that of a
        Marian of the library transformers is ended. Its log-probability counts as 0. None: the target is cut.

    Examples
    --------
    >>> model = Transformer(src_vocab=11, tgt_vocab=11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
    >>> params = model.init(seed=0)
    >>> src, tgt = np.array([[3, 4, 5]]), np.array([[1, 3, 4, 5, 2]])
    >>> model.logits(params, src, tgt[:, :-1]).shape
    (1, 4, 11)
    >>> loss, grads, n_tokens = model.loss_and_grad(params, src, tgt[:, :-1], tgt[:, 1:], dropout_key=1)
    >>> grads["encoder"]["0"]["attention"]["qkv"]["weight"].shape, n_tokens
    ((16, 48), 4)
    """

    forced_eos_id: int | None = None

    decoder_type = TranslationDecoder
    stacks = ("encoder", "decoder")

    def __post_init__(self):
        object.__setattr__(self, "n_layers", check_depths("n_layers", self.n_layers))
        self._check_settings()
        end = self.forced_eos_id
        if end is not None and (not 0 <= end < self.tgt_vocab or end == self.pad_id):
            raise ValueError(f"forced_eos_id={end}, expected an id of the target's vocabulary, and not the padding's")

    @property
    def depths(self):
        """Layers of (encoder, decoder)."""
        return self.n_layers if isinstance(self.n_layers, tuple) else (self.n_layers, self.n_layers)

    def attention_weights(self, params: dict, src: Array, tgt_in: Array, *, backend: AnyBackend = "auto") -> dict:
        """Return the attention weights of each layer.

        Returns
        -------
        dict of lists of NumPy arrays, one for each layer
            "encoder" (B, H, S, S), "decoder" (B, H, T, T), and "memory" (B, H, T, S), the cross-attention.
        """
        ops, n, found = self._backend(backend, params), self.depths[0], list[Array]()
        watching = watched(ops, found)
        memory, _ = self._encode(watching, params, src)
        self._decode(watching, params, memory, src, tgt_in)
        return {"encoder": found[:n], "decoder": found[n::2], "memory": found[n + 1 :: 2]}

    def _init_stacks(self, new):
        makers = zip((new.encoder_layer, new.decoder_layer), self.stacks, strict=True)
        return [self._new_stack(new_layer, stack, new) for new_layer, stack in makers]

    def _encode(self, ops, params, src, dropout_key=None, train=False):
        src = self._tokens("src", src, self.src_vocab, params)
        embedding_key, *layer_keys = split_key(dropout_key, 1 + self.depths[0])
        x, embed_backward = self.embed(ops, params, "source", src, embedding_key)
        memory, stack_backward = self._encoder_stack(ops, params, "encoder", x, self.keep_mask(src), layer_keys, train)
        return memory, lambda dmemory, ready: embed_backward(stack_backward(dmemory, ready))

    def _decode(self, ops, params, memory, src, tgt_in, dropout_key=None, train=False):
        src = self._tokens("src", src, self.src_vocab, params)
        tgt_in = self._tokens("tgt_in", tgt_in, self.tgt_vocab, params)
        self._check_rows(src, tgt_in)
        check_shape(memory=(memory, (*src.shape, self.d_model)))
        embedding_key, *layer_keys = split_key(dropout_key, 1 + self.depths[1])
        masks = self.keep_mask(tgt_in), self.keep_mask(src)

        x, embed_backward = self.embed(ops, params, "target", tgt_in, embedding_key)
        settings, stack = self._settings_for(layer_keys), Stack(train)
        ops = ops.unchecked
        for layer_params, key in zip(self.layers_of(params, "decoder"), layer_keys, strict=True):
            layer_params = dequantized(layer_params)
            x, layer_backward = decoder_layer(ops, layer_params, x, memory, settings, *masks, dropout_key=key)
            stack.keep(layer_backward)
        y, stack_backward = self._end_of_stack(ops, params, "decoder", x, stack)

        def backward(dy, ready):
            dmemory = np.zeros_like(memory)  # each layer adds its part
            dx = stack_backward(dy, ready, dmemory)
            return dmemory, embed_backward(dx)

        return y, backward
