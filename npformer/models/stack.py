"""What the models of Transformer layers have in common: their settings, and a stack of layers."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from npformer import tree
from npformer.arrays import Array, beside
from npformer.backends import AnyBackend
from npformer.checks import shown
from npformer.layers.normalisation import normalise
from npformer.layers.stack import Stack
from npformer.layers.transformer import encoder_layer
from npformer.models.few_words import encoded_in_a_step, step_of_few_words
from npformer.models.initialization import LayerShapes
from npformer.models.model import Model, named
from npformer.models.watching import watched
from npformer.operations.docstring import insert_parameters
from npformer.operations.options import settings_from
from npformer.operations.settings import (
    RMS_NORM_EPS,
    Activation,
    AttentionSettings,
    LayerSettings,
    Rotary,
)
from npformer.quantized import dequantized
from npformer.reference import sinusoidal_encoding
from npformer.reference.math.random import keys_from
from npformer.runtime.forks import cached_property

# Layers of a stack whose parameters are shared: a file with few numbers may say that it has many.
MOST_SHARED = 1000
Positions = Literal["sinusoidal", "sinusoidal_concatenated", "learned", "rotary", "none"]


@dataclass(frozen=True, repr=False)
class TransformerModel(Model):
    """A model of Transformer layers: the settings of these and of embeddings, and one stack.

    Parameters
    ----------
    d_model : int
        Width D.
    n_heads : int
        Number of heads H. It is a divisor of D unless ``d_head`` is given.
    n_layers : int, or (int, int) for an encoder and a decoder
        Number of layers N of each stack. A pair is that of the encoder and that of the decoder.
    d_ff : int
        Feed-forward width F.
    dropout : float
        Dropout rate on embeddings and every sublayer's output (section 5.4), active when a
        dropout_key is given.
    norm : "pre" or "post"
        "pre": normalisation before each sublayer, and once more after each stack. "post":
        normalisation after each residual sum, as in the paper.
    activation : "relu", "gelu", "gelu_erf", "silu" or "swiglu"
        With "swiglu" the hidden weight is (D, 2F), as each hidden unit also has a gate.
    tie_embeddings : bool
        One table for all embeddings and the output projection (section 3.4); a source and a target
        then have one vocabulary.
    pad_id : int or None
        The id that pads short sequences: never attended to, not counted in the loss, embedded as
        zeros. None: no id is padding.
    max_len : int
        Longest sequence accepted.
    dtype : "float32" or "float64"
        Data type of the parameters.
    inner_dropout : float, optional
        Dropout rate on attention weights and feed-forward hidden layers; the same as ``dropout`` if
        not given. The paper has no such dropout.
    norm_type : "layer_norm" or "rms_norm"
        Layer normalisation, or normalisation by the root mean square, which has no mean and no
        bias.
    eps : float, optional
        Added to the variance, or to the mean square, in normalisations; that of the operation if
        not given.
    n_kv_heads : int, optional
        Number of heads of keys and values, a divisor of ``n_heads``: several heads of queries share
        one, and the cache for decoding is that much smaller. ``n_heads`` if not given.
    window : int, optional
        Each position attends only to positions at a distance below it, in a causal stack to the
        last ``window`` ones; in an encoder-decoder all positions attend to the whole source.
    positions : "sinusoidal", "sinusoidal_concatenated", "learned", "rotary" or "none"
        Vectors that are added to the embeddings: sines and cosines (section 3.5), in turn or all
        sines first, as in Marian; or parameters, a table (max_len, D) for each stack; or a rotation
        of the queries and keys of each self-attention; or nothing. A learned position that no
        training sentence reaches learns nothing, so ``max_len`` should not be above their length.
    rotary : Rotary or dict, optional
        The settings of ``positions="rotary"``, as ``layers.Rotary(base=500000.0)``, which is that
        of Llama 3; those of ``layers.Rotary()`` if not given.
    bias : bool
        Whether the linear maps of the layers have a bias.
    scale_embeddings : bool
        Whether the embeddings are multiplied by √D (section 3.4).
    final_norm : bool, optional
        Whether each stack ends with a normalisation; if not given, one with ``norm="pre"`` does.
    softcap : float, optional
        softcap · tanh(score / softcap) replaces each score of attention, so none leaves ±softcap;
        50 in Gemma 2.
    share_layers : int, optional
        Each stack has so many sets of parameters, each for N / share_layers layers in a row
        (ALBERT: 1 set for all); one for each layer if not given.
    qkv_bias : bool, optional
        Whether the maps to queries, keys and values have a bias, which alone have it in Qwen2; as
        ``bias`` if not given.
    d_head : int, optional
        Width K of each head of attention; D / H if not given.
    qk_norm : bool
        Whether each head of the queries and keys of a self-attention is normalised by its root mean
        square, before it is turned by its position (Qwen3).
    """

    d_model: int = 512
    n_heads: int = 8
    n_layers: int | tuple[int, int] = 6
    d_ff: int = 2048
    dropout: float = 0.1
    norm: Literal["pre", "post"] = "pre"
    activation: Activation = "relu"
    tie_embeddings: bool = False
    pad_id: int | None = 0
    max_len: int = 5000
    dtype: str = "float32"
    inner_dropout: float | None = None
    norm_type: Literal["layer_norm", "rms_norm"] = "layer_norm"
    eps: float | None = None
    n_kv_heads: int | None = None
    window: int | None = None
    positions: Positions = "sinusoidal"
    rotary: Rotary | None = None
    bias: bool = True
    scale_embeddings: bool = True
    final_norm: bool | None = None
    softcap: float | None = None
    share_layers: int | None = None
    qkv_bias: bool | None = None
    d_head: int | None = None
    qk_norm: bool = False

    causal = False  # whether the self-attention of a model of one stack is causal
    stacks: ClassVar[tuple[str, ...]]  # the names of the parameters of each stack
    depths: ClassVar[Any]  # the number of layers of each stack

    def __init_subclass__(cls):
        """Write the parameters above into the docstring, in place of "{settings}"."""
        super().__init_subclass__()
        insert_parameters(TransformerModel, cls, "{settings}")

    def _check_settings(self, *vocabularies):
        if isinstance(self.rotary, dict):  # as it was read from a file
            self._set(rotary=settings_from(Rotary, self.rotary, "rotary"))
        super()._check_settings(*vocabularies)
        if self.rotary is not None and self.positions != "rotary":
            both = f"rotary={self.rotary} with positions={self.positions!r}"
            raise ValueError(f"{both}, expected positions='rotary'")
        self.layer_settings.attention.widths(self.d_model)  # raises if the widths do not fit
        if self.share_layers:
            for depth in self.depths:
                self._check_shared(depth)

    def _check_shared(self, depth):
        """Check that the layers of a stack can be divided among their sets of parameters."""
        shared = f"share_layers={shown(self.share_layers)} with {shown(depth)} layers"
        if depth > MOST_SHARED:
            raise ValueError(f"{shared}, expected at most {MOST_SHARED} layers")
        if depth % self.share_layers:
            raise ValueError(f"{shared}, expected a divisor of their number")

    # -- what follows from the settings, computed once

    @cached_property
    def layer_settings(self):
        """The settings of each layer, without dropout."""
        rotary = self.rotary
        if self.positions == "rotary" and rotary is None:
            rotary = Rotary()
        qk_norm_eps = None
        if self.qk_norm:
            qk_norm_eps = RMS_NORM_EPS if self.eps is None else self.eps
        heads = AttentionSettings(
            self.n_heads,
            self.n_kv_heads,
            causal=self.causal,
            window=self.window,
            rotary=rotary,
            softcap=self.softcap,
            d_head=self.d_head,
            qk_norm_eps=qk_norm_eps,
        )
        return LayerSettings(heads, self.norm, self.norm_type, self.eps, self.activation)

    @cached_property
    def layer_shapes(self):
        """The widths of the parameters of each layer, and which there are."""
        return LayerShapes(self.d_model, self.d_ff, self.layer_settings, self.bias, self.qkv_bias)

    @property
    def kv_width(self):
        """The width of the keys and values of all heads, side by side."""
        return sum(self.layer_shapes.heads[1:])

    @cached_property
    def _settings_with_dropout(self):
        rate = self.dropout if self.inner_dropout is None else self.inner_dropout
        heads = replace(self.layer_settings.attention, dropout_rate=rate)
        return replace(
            self.layer_settings,
            attention=heads,
            dropout_rate=self.dropout,
            hidden_dropout_rate=rate,
        )

    def _settings_with(self, dropout_key):
        """The settings of the layers, without dropout if there is no key."""
        return self.layer_settings if dropout_key is None else self._settings_with_dropout

    @cached_property
    def has_final_norm(self):
        """Whether each stack ends with a normalisation."""
        return self.norm == "pre" if self.final_norm is None else self.final_norm

    # -- positions

    @property
    def n_positions(self):
        """The number of positions that have a vector, if positions are vectors."""
        return 0 if self.positions in ("rotary", "none") else self.max_len

    @cached_property
    def has_learned_positions(self):
        """Whether the vectors that are added to the embeddings are parameters."""
        return self.positions == "learned"

    @cached_property
    def position_table(self):
        """The sinusoidal positional encoding (max_len, D), if it is what the model adds."""
        if not self.positions.startswith("sinusoidal"):
            return None
        layout = "interleaved" if self.positions == "sinusoidal" else "concatenated"
        return sinusoidal_encoding(self.max_len, self.d_model, layout, dtype=self.dtype)

    @cached_property
    def _position_tables(self):
        """``position_table`` in each kind of arrays that parameters had: NumPy's, or a GPU's."""
        return {}

    def positions_of(self, params, side, part):
        """What is added to the embeddings of a side at positions, a slice or an array; or None."""
        if self.has_learned_positions:
            return params[named(side, "positions")][part]
        if self.position_table is None:
            return None
        neighbour = tree.first_leaf(params)
        kind = type(neighbour)
        if kind not in self._position_tables:
            self._position_tables[kind] = beside(self.position_table, neighbour)
        return self._position_tables[kind][part]

    # -- the layers of a stack

    @cached_property
    def _names_of_layers(self):
        names = {}
        for name, n_layers in zip(self.stacks, self.depths, strict=True):
            n_sets = self.share_layers or n_layers
            names[name] = [str(i * n_sets // n_layers) for i in range(n_layers)]  # neighbours share
        return names

    def names_of_layers(self, name: str) -> list[str]:
        """The names of the parameters that each layer of a stack uses, from the first layer on.

        >>> from npformer import LanguageModel
        >>> model = LanguageModel(11, d_model=8, n_heads=2, n_layers=6, share_layers=2)
        >>> model.names_of_layers("layers")
        ['0', '0', '0', '1', '1', '1']
        """
        if name not in self.stacks:
            raise ValueError(f"name={shown(name)}, expected {' or '.join(map(repr, self.stacks))}")
        return list(self._names_of_layers[name])

    def layers_of(self, params: dict, name: str) -> list[dict]:
        """The parameters of each layer of a stack: "encoder", "decoder" or "layers"."""
        return [params[name][layer] for layer in self._names_of_layers[name]]

    def _count_uses(self):
        paths = [f"{name}.{layer}" for name in self.stacks for layer in self._names_of_layers[name]]
        return super()._count_uses() | Counter(paths)

    def _new_stack(self, new_layer, name, new):
        """The parameters of a stack, whose layers ``new_layer`` draws, a method of ``new``."""
        names = dict.fromkeys(self._names_of_layers[name])
        params = {layer: new_layer(self.layer_shapes) for layer in names}
        if self.has_final_norm:
            params["norm"] = new.norm(self.d_model, self.norm_type)
        return params

    # -- the first stack, forward and backward

    def _embed_inputs(self, ops, params, inputs, dropout_key):
        """What the first stack reads, (B, T, D), its mask, and the backward pass.

        The mask (B, 1, 1, T) is what its layers attend to, None if this is everything. The backward
        pass is (dx, gradients) -> None.
        """
        x, backward = self.embed(ops, params, self.sides[0], inputs, dropout_key)
        return x, self.keep_mask(inputs), backward

    def _encode(self, ops, params, inputs, dropout_key=None, with_grad=False):
        """The output (B, T, D) of the first stack, and its backward pass, (dy, gradients) -> None.

        Its layers have self-attention. The inputs are checked.
        """
        name = self.stacks[0]
        names = self._names_of_layers[name]
        layers = self.layers_of(params, name)
        settings = self._settings_with(dropout_key)
        embedding_key, *keys = keys_from(dropout_key, 1 + len(layers))

        x, keep_mask, embed_backward = self._embed_inputs(ops, params, inputs, embedding_key)
        # The model has checked its settings, the ids and the key: its layers need not.
        ops = ops.unchecked
        stack = Stack(with_grad)
        for layer, key in zip(map(dequantized, layers), keys, strict=True):
            x, backward = encoder_layer(ops, layer, x, settings, keep_mask, dropout_key=key)
            stack.keep(backward)
        y, norm_backward = self.stack_output(ops, params, name, x)

        def encode_backward(dy, gradients):
            dx = norm_backward(dy, gradients)
            for i, backward in stack.backwards():
                dx, grads = backward(dx)
                gradients.give(f"{name}.{names[i]}", grads)
            embed_backward(dx, gradients)

        return y, encode_backward

    def _encode_inputs(self, ops, params, inputs):
        """The output (B, T, D) of the first stack, without dropout and without a backward pass."""
        name = self.stacks[0]
        layers = self.layers_of(params, name)
        step = step_of_few_words(ops.unchecked, layers, self.layer_settings, inputs.shape)
        if step is None:
            y, _ = self._encode(ops, params, inputs)
        else:
            x, keep_mask, _ = self._embed_inputs(ops, params, inputs, None)
            x = encoded_in_a_step(step, x, keep_mask)
            y, _ = self.stack_output(ops.unchecked, params, name, x)
        return y

    def stack_output(self, ops, params, name, x):
        """The output of a stack whose last layer gives x, normalised if the stack ends so.

        The backward pass is (dy, gradients) -> dx.
        """
        if not self.has_final_norm:
            return x, lambda dy, gradients: dy
        y, norm_backward = normalise(ops, params[name]["norm"], x, self.layer_settings)

        def backward(dy, gradients):
            dx, grads = norm_backward(dy)
            gradients.give(name, {"norm": grads})
            return dx

        return y, backward


@dataclass(frozen=True, repr=False)
class OneVocabulary:
    """The first field of a model: those of the last base class come first."""

    vocab: int | None


@dataclass(frozen=True, repr=False)
class OneStack(TransformerModel, OneVocabulary):
    """What a decoder-only and an encoder-only model have in common, which read one input."""

    n_layers: int = 6  # type: ignore[assignment]  # a Transformer may have two numbers
    activation: Activation = "gelu"
    max_len: int = 1024

    _inputs: ClassVar[Callable]  # (params, …) -> what ``_encode`` takes
    stacks = ("layers",)

    @cached_property
    def depths(self):
        """The number of layers, of one stack."""
        return (self.n_layers,)

    def attention_weights(
        self, params: dict, *inputs: Array, backend: AnyBackend = "auto", **more: Array
    ) -> dict:
        """Return the attention weights of each layer, {"layers": [(B, H, T, T), …]}, NumPy arrays.

        The inputs are those of ``loss_and_grad``, without targets.
        """
        weights: list[Array] = []
        ops = watched(self._backend(backend, params), weights)
        self._encode(ops, params, self._inputs(params, *inputs, **more))
        return {"layers": weights}
