"""The encoder-decoder Transformer (Vaswani et al. 2017, "Attention is all you need")."""

from dataclasses import dataclass
from typing import get_args

import numpy as np

from npformer import layers, tree
from npformer.arrays import on_host
from npformer.checks import check_fields, check_fraction, check_int, check_shape
from npformer.models.encoder_decoder import EncoderDecoder, check_depths, in_order
from npformer.models.incremental import IncrementalDecoder
from npformer.operations.contract import GATES
from npformer.reference import padding_mask, sinusoidal_encoding, split_key
from npformer.reference.math.activations import Activation
from npformer.reference.math.packed_attention import split_parts


@dataclass(frozen=True)
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
    activation : "relu", "gelu", "silu" or "swiglu"
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

    Examples
    --------
    >>> import numpy as np
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

    decoder_type = IncrementalDecoder

    def __post_init__(self):
        self._check_settings()
        check_fields(self, check_int, "n_heads", "d_ff", at_least=1)
        check_fields(self, check_depths, "n_layers")
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model={self.d_model} is not divisible by n_heads={self.n_heads}")
        if self.norm not in ("pre", "post"):
            raise ValueError(f"norm={self.norm!r}, expected 'pre' or 'post'")
        if self.norm_type not in ("layer_norm", "rms_norm"):
            raise ValueError(f"norm_type={self.norm_type!r}, expected 'layer_norm' or 'rms_norm'")
        if self.inner_dropout is not None:
            check_fields(self, check_fraction, "inner_dropout")
        if self.activation not in get_args(Activation):
            raise ValueError(f"activation={self.activation!r}, expected one of {sorted(get_args(Activation))}")

    @property
    def depths(self):
        """Layers of (encoder, decoder)."""
        return self.n_layers if isinstance(self.n_layers, tuple) else (self.n_layers, self.n_layers)

    def attention_weights(self, params, src, tgt_in, *, backend="auto"):
        """Return the attention weights of each layer.

        Returns
        -------
        dict of lists of NumPy arrays, one for each layer
            "encoder" (B, H, S, S), "decoder" (B, H, T, T), and "memory" (B, H, T, S), the cross-attention.
        """
        ops = _Watched(self._backend(backend, params))
        memory, _ = self._encode(ops, params, src)
        self._decode(ops, params, memory, src, tgt_in)
        n_encoder, n_decoder = self.depths
        decoder = ops.weights[n_encoder:]  # self-attention and attention to the memory in turn
        return {"encoder": ops.weights[:n_encoder], "decoder": decoder[0::2], "memory": decoder[1::2]}

    def _init_stacks(self, new):
        n_encoder, n_decoder = self.depths
        sizes = self.d_model, self.d_ff, GATES[self.activation]
        encoder = {str(i): new.encoder_layer(*sizes) for i in range(n_encoder)}
        decoder = {str(i): new.decoder_layer(*sizes) for i in range(n_decoder)}
        if self.norm == "pre":
            encoder["norm"], decoder["norm"] = new.layer_norm(self.d_model), new.layer_norm(self.d_model)
        if self.norm_type == "rms_norm":
            stacks = map(tree.leaves, (encoder, decoder))
            return [tree.from_leaves(x for x in stack if not x[0].endswith("norm.bias")) for stack in stacks]
        return encoder, decoder

    def _encode(self, ops, params, src, dropout_key=None, train=False):
        src = self._tokens("src", src, self.src_vocab, params)
        embedding_key, *layer_keys = split_key(dropout_key, 1 + self.depths[0])
        table = self.tables(params)[0]
        options = self._layer_options(dropout_key)
        keep_mask = padding_mask(src, self.pad_id)

        x, embed_backward = self._embed(ops, table, src, embedding_key)
        stack = layers.Stack(train)
        for i, layer_key in enumerate(layer_keys):
            layer = params["encoder"][str(i)]
            x, layer_backward = layers.encoder_layer(ops, layer, x, keep_mask, dropout_key=layer_key, **options)
            stack.keep(layer_backward)
        x, norm_backward = self._final_norm(ops, params.get("encoder", {}), x)

        def backward(dx, ready):
            dx, grads = norm_backward(dx)
            for i, layer_backward in stack.backwards():
                dx, grads[str(i)] = layer_backward(dx)
                ready(f"encoder.{i}", grads[str(i)])
            return in_order(grads, params.get("encoder", {})), embed_backward(dx)

        return x, backward

    def _decode(self, ops, params, memory, src, tgt_in, dropout_key=None, train=False):
        src = self._tokens("src", src, self.src_vocab, params)
        tgt_in = self._tokens("tgt_in", tgt_in, self.tgt_vocab, params)
        self._check_rows(src, tgt_in)
        check_shape(memory=(memory, (*src.shape, self.d_model)))
        embedding_key, *layer_keys = split_key(dropout_key, 1 + self.depths[1])
        table = self.tables(params)[1]
        options = self._layer_options(dropout_key)
        masks = padding_mask(tgt_in, self.pad_id), padding_mask(src, self.pad_id)

        x, embed_backward = self._embed(ops, table, tgt_in, embedding_key)
        stack = layers.Stack(train)
        for i, layer_key in enumerate(layer_keys):
            layer = params["decoder"][str(i)]
            x, layer_backward = layers.decoder_layer(ops, layer, x, memory, *masks, dropout_key=layer_key, **options)
            stack.keep(layer_backward)
        x, norm_backward = self._final_norm(ops, params.get("decoder", {}), x)

        def backward(dx, ready):
            dmemory = np.zeros_like(memory)
            dx, grads = norm_backward(dx)
            for i, layer_backward in stack.backwards():
                dx, dmemory_of_layer, grads[str(i)] = layer_backward(dx)
                ready(f"decoder.{i}", grads[str(i)])
                dmemory += dmemory_of_layer
            return dmemory, in_order(grads, params.get("decoder", {})), embed_backward(dx)

        return x, backward

    def _final_norm(self, ops, params, x):
        """Normalise the output of a pre-norm stack, where the residual sums are not normalised."""
        if self.norm == "post":
            return x, lambda dx: (dx, {})
        y, norm_backward = layers.layer_norm(ops, params["norm"], x)

        def backward(dy):
            dx, grads = norm_backward(dy)
            return dx, {"norm": grads}

        return y, backward

    def _layer_options(self, dropout_key):
        return {
            "n_heads": self.n_heads,
            "norm": self.norm,
            "activation": self.activation,
            "dropout_rate": self._rate(dropout_key),
            "inner_dropout_rate": None if dropout_key is None else self.inner_dropout,
        }

    @property
    def positions(self):
        """The sinusoidal positional encoding (max_len, D)."""
        return sinusoidal_encoding(self.max_len, self.d_model).astype(self.dtype)


class _Watched:
    """A backend that records the weights of every attention it computes."""

    def __init__(self, ops):
        self.ops = ops
        self.weights = []

    def __getattr__(self, name):
        return getattr(self.ops, name)

    def self_attention(self, qkv, n_heads, keep_mask=None, *, causal=False, **options):
        q, k, v = split_parts(qkv, n_heads, 3)
        self.weights.append(on_host(self.ops.attention(q, k, v, keep_mask, causal=causal)[1]))
        return self.ops.self_attention(qkv, n_heads, keep_mask, causal=causal, **options)

    def cross_attention(self, q, kv, n_heads, keep_mask=None, *, causal=False, **options):
        (queries,), (k, v) = split_parts(q, n_heads, 1), split_parts(kv, n_heads, 2)
        self.weights.append(on_host(self.ops.attention(queries, k, v, keep_mask, causal=causal)[1]))
        return self.ops.cross_attention(q, kv, n_heads, keep_mask, causal=causal, **options)
