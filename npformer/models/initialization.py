"""Initialization of the parameters of a new model."""

import math
from dataclasses import dataclass

import numpy as np

from npformer.operations.settings import AttentionSettings, LayerSettings
from npformer.reference.math.activations import INPUTS


@dataclass(frozen=True)
class LayerShapes:
    """Which parameters a layer of a Transformer has, and their widths.

    An option of the parameters is a field here, which the ``Initializer`` reads.

    Parameters
    ----------
    d_model, d_ff : int
        The width D of the layer, and the width F of its hidden layer.
    settings : LayerSettings
        The heads, the normalisation and the activation, which have parameters, or other widths.
    bias : bool
        Whether the linear maps have a bias.
    qkv_bias : bool, optional
        Whether those to queries, keys and values have one; as ``bias`` if not given.

    Examples
    --------
    >>> settings = LayerSettings(AttentionSettings(8, n_kv_heads=2))
    >>> shapes = LayerShapes(d_model=64, d_ff=256, settings=settings)
    >>> shapes.heads, shapes.hidden
    ([64, 16, 16], [256])
    """

    d_model: int
    d_ff: int
    settings: LayerSettings = LayerSettings(AttentionSettings(1))
    bias: bool = True
    qkv_bias: bool | None = None

    @property
    def has_qkv_bias(self) -> bool:
        """Whether the maps to queries, keys and values have a bias."""
        return self.bias if self.qkv_bias is None else self.qkv_bias

    @property
    def heads(self) -> list[int]:
        """The widths of the queries, keys and values of all heads."""
        return self.settings.attention.widths(self.d_model)

    @property
    def head_width(self) -> int:
        """The width K of a head."""
        return self.settings.attention.head_width(self.d_model)

    @property
    def hidden(self) -> list[int]:
        """The widths of the linear maps of the hidden layer: "swiglu" has two."""
        return [self.d_ff] * INPUTS[self.settings.activation]


class Initializer:
    """Draws the parameters of a model, from one random generator.

    So they depend on the seed and on the order of the calls.
    """

    def __init__(self, seed, dtype):
        self.rng = np.random.default_rng(seed)
        self.dtype = np.dtype(dtype)

    # -- how numbers are drawn

    def _xavier(self, d_in, d_out):
        """A matrix that keeps the variance, forward and backward (Glorot and Bengio 2010)."""
        return self._uniform(math.sqrt(6 / (d_in + d_out)), (d_in, d_out))

    def _uniform(self, bound, shape):
        return self.rng.uniform(-bound, bound, shape).astype(self.dtype)

    def _orthogonal(self, d):
        q, r = np.linalg.qr(self.rng.standard_normal((d, d)))
        # Without the signs of r, the matrices would not be drawn uniformly (Mezzadri 2007).
        return (q * np.sign(np.diag(r))).astype(self.dtype)

    def full(self, n, value):
        """A vector with n times the same number."""
        return np.full(n, value, self.dtype)

    def _joined(self, parts):
        return np.concatenate(parts, axis=-1)

    # -- what all models are made of

    def linear(self, d_in, *d_outs, bias=True):
        """Projections of the same input, side by side: each Xavier uniform, with bias 0."""
        params = {"weight": self._joined([self._xavier(d_in, d_out) for d_out in d_outs])}
        if bias:
            params["bias"] = self.full(sum(d_outs), 0)
        return params

    def embedding(self, vocab, d_model):
        """An embedding table with variance 1/D: after scaling by √D its entries have variance 1."""
        table = self.rng.standard_normal((vocab, d_model)) / math.sqrt(d_model)
        return table.astype(self.dtype)

    def positions(self, length, d_model):
        """A table of learned positions with variance ½, the mean square of sines and cosines."""
        table = self.rng.standard_normal((length, d_model)) * math.sqrt(0.5)
        return table.astype(self.dtype)

    def norm(self, d_model, norm_type="layer_norm"):
        """A normalisation with gain 1 and, if it has one, bias 0."""
        params = {"gain": self.full(d_model, 1)}
        if norm_type == "layer_norm":
            params["bias"] = self.full(d_model, 0)
        return params

    # -- the Transformer

    def encoder_layer(self, shapes):
        """A Transformer encoder layer: self-attention and feed-forward, with normalisations."""
        return self._layer(
            shapes,
            attention=self.self_attention(shapes),
            feed_forward=self.feed_forward(shapes),
        )

    def decoder_layer(self, shapes):
        """A Transformer decoder layer, with attention to the encoder's output in between."""
        return self._layer(
            shapes,
            attention=self.self_attention(shapes),
            memory_attention=self.memory_attention(shapes),
            feed_forward=self.feed_forward(shapes),
        )

    def _layer(self, shapes, **sublayers):
        """Sublayers, each with its normalisation."""
        params = {}
        for name, sublayer in sublayers.items():
            params[name] = sublayer
            params[f"{name}_norm"] = self.norm(shapes.d_model, shapes.settings.norm_type)
        return params

    def self_attention(self, shapes):
        """Projections to queries, keys and values, the output projection, and norms of heads."""
        params = {
            "qkv": self.linear(shapes.d_model, *shapes.heads, bias=shapes.has_qkv_bias),
            "out": self.linear(shapes.heads[0], shapes.d_model, bias=shapes.bias),
        }
        if shapes.settings.attention.qk_norm_eps is not None:
            params["q_norm"] = self.norm(shapes.head_width, "rms_norm")
            params["k_norm"] = self.norm(shapes.head_width, "rms_norm")
        return params

    def memory_attention(self, shapes):
        """The projections of cross-attention: keys and values are of the encoder's output."""
        queries, *keys_and_values = shapes.heads
        return {
            "q": self.linear(shapes.d_model, queries, bias=shapes.has_qkv_bias),
            "kv": self.linear(shapes.d_model, *keys_and_values, bias=shapes.has_qkv_bias),
            "out": self.linear(queries, shapes.d_model, bias=shapes.bias),
        }

    def feed_forward(self, shapes):
        """The hidden layer, and the output projection."""
        return {
            "hidden": self.linear(shapes.d_model, *shapes.hidden, bias=shapes.bias),
            "out": self.linear(shapes.d_ff, shapes.d_model, bias=shapes.bias),
        }

    # -- earlier models

    def recurrence(self, d_in, d_out, cell):
        """A recurrent layer: the linear map of its input, and that of its hidden state.

        The latter is orthogonal for each gate: such a matrix preserves the norm of a vector,
        however often it is applied (Saxe et al. 2014). The forget gate of an LSTM starts open, with
        bias 1 (Jozefowicz et al. 2015).
        """
        n_gates = {"gru": 3, "lstm": 4}[cell]
        of_input = self.linear(d_in, *[d_out] * n_gates)
        of_state = {"weight": self._joined([self._orthogonal(d_out) for _ in range(n_gates)])}
        if cell == "gru":
            of_state["bias"] = self.full(d_out, 0)
        else:
            gates = self.full(d_out, 0), self.full(d_out, 1), self.full(2 * d_out, 0)
            of_input["bias"] = self._joined(gates)
        return {"input": of_input, "hidden": of_state}

    def score(self, name, d_model):
        """The attention score of a recurrent model: a (D, D) matrix, or a hidden layer of width D.

        "dot" has no parameters.
        """
        if name == "general":
            return {"weight": self._xavier(d_model, d_model)}
        return {
            "w_q": self._xavier(d_model, d_model),
            "w_k": self._xavier(d_model, d_model),
            "w_score": self._xavier(d_model, 1)[:, 0],
        }

    def conv1d(self, n_taps, d_in, d_out):
        """A convolution: Xavier uniform, with n_taps · d_in inputs and n_taps · d_out outputs."""
        bound = math.sqrt(6 / (n_taps * (d_in + d_out)))
        return {"weight": self._uniform(bound, (n_taps, d_in, d_out)), "bias": self.full(d_out, 0)}

    def residual_conv_block(self, d_model, n_taps):
        """To half the width, a convolution, and back, each after a normalisation."""
        inner = d_model // 2
        return {
            "reduce_norm": self.norm(d_model),
            "reduce": self.linear(d_model, inner),
            "conv_norm": self.norm(inner),
            "conv": self.conv1d(n_taps, inner, inner),
            "expand_norm": self.norm(inner),
            "expand": self.linear(inner, d_model),
        }


class ShapesOnly(Initializer):
    """Makes arrays of the same shapes and dtype without memory: all entries share one number.

    >>> ShapesOnly("float32").linear(10**9, 10**9)["weight"].shape
    (1000000000, 1000000000)
    """

    def __init__(self, dtype):
        self.dtype = np.dtype(dtype)

    def embedding(self, vocab, d_model):
        """A table, of embeddings or of learned positions."""
        return self._shaped(vocab, d_model)

    positions = embedding

    def full(self, n, value):
        """A vector."""
        return self._shaped(n)

    def _uniform(self, bound, shape):
        return self._shaped(*shape)

    def _orthogonal(self, d):
        return self._shaped(d, d)

    def _joined(self, parts):
        return self._shaped(*parts[0].shape[:-1], sum(part.shape[-1] for part in parts))

    def _shaped(self, *shape):
        return np.broadcast_to(np.zeros((), self.dtype), shape)
