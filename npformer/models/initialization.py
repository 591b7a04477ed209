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
    """Draws parameters from one random generator, so that they depend on the seed and on the order of the calls."""

    def __init__(self, seed, dtype):
        self.rng = np.random.default_rng(seed)
        self.dtype = np.dtype(dtype)

    def linear(self, d_in, *d_outs, bias=True):
        """Projections of the same input, concatenated: each is Xavier uniform (Glorot and Bengio 2010), with bias 0."""
        weight = {"weight": self._joined([self._xavier(d_in, d_out) for d_out in d_outs])}
        return {**weight, "bias": self.full(sum(d_outs), 0)} if bias else weight

    def _xavier(self, d_in, d_out):
        return self._uniform(math.sqrt(6 / (d_in + d_out)), (d_in, d_out))

    def _uniform(self, bound, shape):
        return self.rng.uniform(-bound, bound, shape).astype(self.dtype)

    def full(self, n, value):
        """A vector with n times the same number."""
        return np.full(n, value, self.dtype)

    def _joined(self, parts):
        return np.concatenate(parts, axis=-1)

    def embedding(self, vocab, d_model):
        """An embedding table with variance 1/D: after scaling by √D its entries have variance 1."""
        return (self.rng.standard_normal((vocab, d_model)) / math.sqrt(d_model)).astype(self.dtype)

    def positions(self, length, d_model):
        """A table of learned positions with variance ½, which is the mean square of sines and cosines."""
        return (self.rng.standard_normal((length, d_model)) * math.sqrt(0.5)).astype(self.dtype)

    def norm(self, d_model, norm_type="layer_norm"):
        """A normalisation with gain 1 and, if it has one, bias 0."""
        gain = {"gain": self.full(d_model, 1)}
        return gain if norm_type == "rms_norm" else {**gain, "bias": self.full(d_model, 0)}

    def recurrence(self, d_in, d_out, cell):
        """A recurrent layer: the linear map of its input, and that of its hidden state, orthogonal for each gate.

        An orthogonal matrix preserves the norm of a vector, however often it is applied (Saxe et al. 2014). The
        forget gate of an LSTM starts open, with bias 1 (Jozefowicz et al. 2015).
        """
        n_gates = {"gru": 3, "lstm": 4}[cell]
        params = {
            "input": self.linear(d_in, *[d_out] * n_gates),
            "hidden": {"weight": self._joined([self._orthogonal(d_out) for _ in range(n_gates)])},
        }
        if cell == "gru":
            params["hidden"]["bias"] = self.full(d_out, 0)
        else:
            params["input"]["bias"] = self._joined([self.full(d_out, 0), self.full(d_out, 1), self.full(2 * d_out, 0)])
        return params

    def _orthogonal(self, d):
        q, r = np.linalg.qr(self.rng.standard_normal((d, d)))
        return (q * np.sign(np.diag(r))).astype(self.dtype)

    def score(self, name, d_model):
        """The attention score of a recurrent model: a (D, D) matrix, or a hidden layer of width D."""
        if name == "general":
            return {"weight": self._xavier(d_model, d_model)}
        w_q, w_k = self._xavier(d_model, d_model), self._xavier(d_model, d_model)
        return {"w_q": w_q, "w_k": w_k, "w_score": self._xavier(d_model, 1)[:, 0]}

    def self_attention(self, shapes):
        """Projections to queries, keys and values, the output projection, and the normalisations of heads, if any."""
        params = {
            "qkv": self.linear(shapes.d_model, *shapes.heads, bias=shapes.has_qkv_bias),
            "out": self.linear(shapes.heads[0], shapes.d_model, bias=shapes.bias),
        }
        if shapes.settings.attention.qk_norm_eps is not None:
            for name in ("q_norm", "k_norm"):
                params[name] = self.norm(shapes.head_width, "rms_norm")
        return params

    def memory_attention(self, shapes):
        """The projections of cross-attention, where keys and values are computed from the encoder's output."""
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

    def conv1d(self, n_taps, d_in, d_out):
        """A convolution: Xavier uniform, with fan-in n_taps · d_in and fan-out n_taps · d_out, and bias 0."""
        bound = math.sqrt(6 / (n_taps * (d_in + d_out)))
        return {"weight": self._uniform(bound, (n_taps, d_in, d_out)), "bias": self.full(d_out, 0)}

    def residual_conv_block(self, d_model, n_taps):
        """A projection to half the width, a convolution, and a projection back, each preceded by a normalisation."""
        inner = d_model // 2
        return {
            "reduce_norm": self.norm(d_model),
            "reduce": self.linear(d_model, inner),
            "conv_norm": self.norm(inner),
            "conv": self.conv1d(n_taps, inner, inner),
            "expand_norm": self.norm(inner),
            "expand": self.linear(inner, d_model),
        }

    def encoder_layer(self, shapes):
        """A Transformer encoder layer: self-attention and feed-forward, each with its normalisation."""
        sublayers = {
            "attention": self.self_attention(shapes),
            "feed_forward": self.feed_forward(shapes),
        }
        return self._with_norms(sublayers, shapes)

    def decoder_layer(self, shapes):
        """A Transformer decoder layer: as ``encoder_layer``, with attention to the encoder's output in between."""
        sublayers = {
            "attention": self.self_attention(shapes),
            "memory_attention": self.memory_attention(shapes),
            "feed_forward": self.feed_forward(shapes),
        }
        return self._with_norms(sublayers, shapes)

    def _with_norms(self, sublayers, shapes):
        params = {}
        for name, sublayer in sublayers.items():
            params[name] = sublayer
            params[f"{name}_norm"] = self.norm(shapes.d_model, shapes.settings.norm_type)
        return params


class ShapesOnly(Initializer):
    """Makes arrays of the same shapes that draw nothing and take no memory: all entries share one byte.

    >>> ShapesOnly().linear(10**9, 10**9)["weight"].shape
    (1000000000, 1000000000)
    """

    def __init__(self):
        self.dtype = np.dtype(np.int8)

    def embedding(self, vocab, d_model):
        """A table, of embeddings or of learned positions."""
        return _shaped(vocab, d_model)

    positions = embedding

    def full(self, n, value):
        """A vector."""
        return _shaped(n)

    def _uniform(self, bound, shape):
        return _shaped(*shape)

    def _orthogonal(self, d):
        return _shaped(d, d)

    def _joined(self, parts):
        return _shaped(*parts[0].shape[:-1], sum(part.shape[-1] for part in parts))


def _shaped(*shape):
    return np.broadcast_to(np.int8(0), shape)
