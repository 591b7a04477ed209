"""What can be set of a model of Transformer layers, and what follows from it for each layer."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from npformer.checks import shown
from npformer.errors import UserError
from npformer.models.initialization import LayerShapes
from npformer.operations.docstring import insert_parameters
from npformer.operations.settings import (
    RMS_NORM_EPS,
    Activation,
    AttentionSettings,
    LayerSettings,
    Rotary,
)
from npformer.runtime.forks import cached_property

# Layers of a stack whose parameters are shared: a file with few numbers may say that it has many.
MOST_SHARED = 1000
Positions = Literal["sinusoidal", "sinusoidal_concatenated", "learned", "rotary", "none"]


@dataclass(frozen=True, repr=False)
class TransformerSettings:
    """The settings of the layers and embeddings of a model, and what follows from them.

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
    depths: ClassVar[Any]  # the number of layers of each stack

    def __init_subclass__(cls):
        """Write the parameters above into the docstring, in place of "{settings}"."""
        super().__init_subclass__()
        insert_parameters(TransformerSettings, cls, "{settings}")

    def _check_layers(self):
        """Check that the settings of the layers fit, and that they can share their parameters."""
        if self.rotary is not None and self.positions != "rotary":
            both = f"rotary={self.rotary} with positions={self.positions!r}"
            raise UserError(f"{both}, expected positions='rotary'")
        self.layer_settings.attention.widths(self.d_model)  # raises if the widths do not fit
        if self.share_layers:
            for depth in self.depths:
                self._check_shared(depth)

    def _check_shared(self, depth):
        """Check that the layers of a stack can be divided among their sets of parameters."""
        shared = f"share_layers={shown(self.share_layers)} with {shown(depth)} layers"
        if depth > MOST_SHARED:
            raise UserError(f"{shared}, expected at most {MOST_SHARED} layers")
        if depth % self.share_layers:
            raise UserError(f"{shared}, expected a divisor of their number")

    # -- what follows, computed once

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

    @property
    def n_positions(self):
        """The number of positions that have a vector, if positions are vectors."""
        return 0 if self.positions in ("rotary", "none") else self.max_len

    @cached_property
    def has_learned_positions(self):
        """Whether the vectors that are added to the embeddings are parameters."""
        return self.positions == "learned"
