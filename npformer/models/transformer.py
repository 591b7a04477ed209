"""The encoder-decoder Transformer (Vaswani et al. 2017, "Attention is all you need")."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from npformer import layers
from npformer.arrays import Array, on_host
from npformer.backends import AnyBackend
from npformer.checks import check_shape, shown
from npformer.layers.normalisation import normalise
from npformer.models.encoder_decoder import EncoderDecoder, check_depths
from npformer.models.incremental import IncrementalDecoder
from npformer.reference import padding_mask, sinusoidal_encoding, split_key
from npformer.reference.math.packed_attention import repeated, split_parts, split_q_kv
from npformer.reference.settings import Rotary
from npformer.runtime.forks import cached_property


@dataclass(frozen=True, repr=False)
class Transformer(EncoderDecoder):
    """An encoder-decoder Transformer: the architecture only; parameters are a separate nested dict.

    Parameters
    ----------
    src_vocab, tgt_vocab : int
        Vocabulary sizes V.
    d_model, n_heads : int
        Width D, heads H (D must be divisible by H).
    n_layers : int or (int, int)
        Number of layers N of each stack, or of (encoder, decoder).
    d_ff : int
        Feed-forward width F.
    dropout : float
        Dropout rate on embeddings and every sublayer's output (section 5.4), active when a dropout_key is given.
    norm : "pre" or "post"
        "pre": normalisation before each sublayer, and once more after each stack. "post": normalisation after each
        residual sum, as in the paper.
    activation : "relu", "gelu", "gelu_erf", "silu" or "swiglu"
        With "swiglu" the hidden weight is (D, 2F), as each hidden unit also has a gate.
    tie_embeddings : bool
        One table for source, target and output projection (section 3.4); both vocabularies must be the same size.
    pad_id : int
        The id that pads short sequences: never attended to, not counted in the loss, embedded as zeros.
    max_len : int
        Longest sequence accepted.
    dtype : "float32" or "float64"
        Data type of the parameters.
    inner_dropout : float, optional
        Dropout rate on attention weights and feed-forward hidden layers; the same as ``dropout`` if not given. The
        paper has no such dropout.
    norm_type : "layer_norm" or "rms_norm"
        Layer normalisation, or normalisation by the root mean square, which has no mean and no bias.
    eps : float, optional
        Added to the variance, or to the mean square, in normalisations; that of the operation if not given.
    n_kv_heads : int, optional
        Number of heads of keys and values, a divisor of ``n_heads``: several heads of queries share one, and the cache
        for decoding is that much smaller. ``n_heads`` if not given.
    window : int, optional
        Each position attends only to positions at a distance below it, in the decoder to the last ``window`` ones; all
        positions attend to the whole source.
    positions : "sinusoidal", "learned" or "rotary"
        Vectors that are added to the embeddings: sines and cosines (section 3.5), or parameters, a table (max_len, D)
        for each stack; or a rotation of the queries and keys of each self-attention. A learned position that no
        training sentence reaches learns nothing, so ``max_len`` should not be above their length.
    rotary : Rotary or dict, optional
        The settings of ``positions="rotary"``, as ``layers.Rotary(base=500000.0)``, which is that of Llama 3; those of
        ``layers.Rotary()`` if not given.

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

    src_vocab: int
    tgt_vocab: int
    d_model: int = 512
    n_heads: int = 8
    n_layers: int | tuple[int, int] = 6
    d_ff: int = 2048
    dropout: float = 0.1
    norm: str = "pre"
    activation: str = "relu"
    tie_embeddings: bool = False
    pad_id: int = 0
    max_len: int = 5000
    dtype: str = "float32"
    inner_dropout: float | None = None
    norm_type: str = "layer_norm"
    eps: float | None = None
    n_kv_heads: int | None = None
    window: int | None = None
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    rotary: Rotary | None = None

    decoder_type = IncrementalDecoder

    def __post_init__(self):
        if isinstance(self.rotary, dict):  # as it was read from a file
            known = list(vars(Rotary()))
            if unknown := [name for name in self.rotary if name not in known]:
                raise ValueError(f"rotary has the settings {shown(unknown)}, expected some of {known}")
            object.__setattr__(self, "rotary", Rotary(**self.rotary))
        self._check_settings()
        object.__setattr__(self, "n_layers", check_depths("n_layers", self.n_layers))
        if self.rotary is not None and self.positions != "rotary":
            raise ValueError(f"rotary={self.rotary} with positions={self.positions!r}, expected positions='rotary'")
        self.layer_settings.attention.widths(self.d_model)  # raises if a setting or the width is wrong

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
        ops, n, found = self._backend(backend, params), self.depths[0], []

        def self_attend(qkv, settings, keep_mask=None, *, bias=None, dropout_key=None):
            return attend(split_parts(qkv, *settings.parts), settings, keep_mask, bias)

        def cross_attend(q, kv, settings, keep_mask=None, *, bias=None, dropout_key=None):
            return attend(split_q_kv(q, kv, settings), settings, keep_mask, bias)

        def attend(parts, settings, keep_mask, bias):
            q, *kv = parts
            parts = q, *(repeated(heads, settings.n_heads) for heads in kv)
            options = {"bias": bias, "causal": settings.causal, "scale": settings.scale}
            out, weights = ops.attention(*parts, keep_mask, **options)
            found.append(on_host(weights))
            return ops.merge_heads(out), None  # nothing is kept for a backward pass

        watched = ops.replaced(self_attention=self_attend, cross_attention=cross_attend)
        memory, _ = self._encode(watched, params, src)
        self._decode(watched, params, memory, src, tgt_in)
        return {"encoder": found[:n], "decoder": found[n::2], "memory": found[n + 1 :: 2]}

    def _init_stacks(self, new):
        n_encoder, n_decoder = self.depths
        given = self.d_model, self.d_ff, self.layer_settings
        encoder = {str(i): new.encoder_layer(*given) for i in range(n_encoder)}
        decoder = {str(i): new.decoder_layer(*given) for i in range(n_decoder)}
        if self.norm == "pre":
            encoder["norm"], decoder["norm"] = (new.norm(self.d_model, self.norm_type) for _ in range(2))
        return encoder, decoder

    def _encode(self, ops, params, src, dropout_key=None, train=False):
        src = self._tokens("src", src, self.src_vocab, params)
        embedding_key, *layer_keys = split_key(dropout_key, 1 + self.depths[0])
        settings = self.layer_settings if dropout_key is None else self._settings_with_dropout
        keep_mask = padding_mask(src, self.pad_id)

        x, embed_backward = self._embed(ops, params, "source", src, embedding_key)
        stack = layers.Stack(train)
        for i, layer_key in enumerate(layer_keys):
            layer = params["encoder"][str(i)]
            x, layer_backward = layers.encoder_layer(ops, layer, x, settings, keep_mask, dropout_key=layer_key)
            stack.keep(layer_backward)
        x, norm_backward = self._final_norm(ops, params.get("encoder", {}), x)

        def backward(dx, ready):
            dx, grads = norm_backward(dx)
            ready("encoder", grads)
            for i, layer_backward in stack.backwards():
                dx, grads = layer_backward(dx)
                ready(f"encoder.{i}", grads)
            return embed_backward(dx)

        return x, backward

    def _decode(self, ops, params, memory, src, tgt_in, dropout_key=None, train=False):
        src = self._tokens("src", src, self.src_vocab, params)
        tgt_in = self._tokens("tgt_in", tgt_in, self.tgt_vocab, params)
        self._check_rows(src, tgt_in)
        check_shape(memory=(memory, (*src.shape, self.d_model)))
        embedding_key, *layer_keys = split_key(dropout_key, 1 + self.depths[1])
        settings = self.layer_settings if dropout_key is None else self._settings_with_dropout
        masks = padding_mask(tgt_in, self.pad_id), padding_mask(src, self.pad_id)

        x, embed_backward = self._embed(ops, params, "target", tgt_in, embedding_key)
        stack = layers.Stack(train)
        for i, layer_key in enumerate(layer_keys):
            layer = params["decoder"][str(i)]
            x, layer_backward = layers.decoder_layer(ops, layer, x, memory, settings, *masks, dropout_key=layer_key)
            stack.keep(layer_backward)
        x, norm_backward = self._final_norm(ops, params.get("decoder", {}), x)

        def backward(dx, ready):
            dmemory = np.zeros_like(memory)
            dx, grads = norm_backward(dx)
            ready("decoder", grads)
            for i, layer_backward in stack.backwards():
                dx, dmemory_of_layer, grads = layer_backward(dx)
                ready(f"decoder.{i}", grads)
                dmemory += dmemory_of_layer
            return dmemory, embed_backward(dx)

        return x, backward

    def _final_norm(self, ops, params, x):
        """Normalise the output of a pre-norm stack, where the residual sums are not normalised."""
        if self.norm == "post":
            return x, lambda dx: (dx, {})
        y, norm_backward = normalise(ops, params["norm"], x, self.layer_settings)

        def backward(dy):
            dx, grads = norm_backward(dy)
            return dx, {"norm": grads}

        return y, backward

    @cached_property
    def layer_settings(self):
        """The settings of each layer, without dropout."""
        rotary = Rotary() if self.positions == "rotary" and self.rotary is None else self.rotary
        heads = layers.AttentionSettings(self.n_heads, self.n_kv_heads, window=self.window, rotary=rotary)
        return layers.LayerSettings(heads, self.norm, self.norm_type, self.eps, self.activation)

    @cached_property
    def _settings_with_dropout(self):
        rate = self.dropout if self.inner_dropout is None else self.inner_dropout
        heads = replace(self.layer_settings.attention, dropout_rate=rate)
        return replace(self.layer_settings, attention=heads, dropout_rate=self.dropout, hidden_dropout_rate=rate)

    @property
    def n_positions(self):
        """The number of positions that have a vector, if positions are vectors."""
        return 0 if self.positions == "rotary" else self.max_len

    @property
    def has_learned_positions(self):
        """Whether the vectors that are added to the embeddings are parameters."""
        return self.positions == "learned"

    @property
    def position_table(self):
        """The sinusoidal positional encoding (max_len, D), if it is what the model adds."""
        if self.positions != "sinusoidal":
            return None
        return sinusoidal_encoding(self.max_len, self.d_model, dtype=self.dtype)
