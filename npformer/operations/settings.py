"""The settings of attention and of the layers of the Transformer, which everything passes on as one
record.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from npformer.arrays import Array
from npformer.checks import shown
from npformer.errors import UserError
from npformer.operations.docstring import insert_parameters
from npformer.operations.options import changed_fields, check_fields, settings_from
from npformer.runtime.forks import cached_property

Activation = Literal["relu", "gelu", "gelu_erf", "silu", "swiglu"]
LAYER_NORM_EPS = 1e-5
RMS_NORM_EPS = 1e-6


@dataclass(frozen=True)
class Llama3Scaling:
    """How Llama 3.1 turns more slowly, so that a model reads longer texts than in its training.

    A pair that makes fewer than ``low_freq_factor`` turns in a text of the original length has not
    been trained at all angles: its frequency is divided by ``factor``. One that makes more than
    ``high_freq_factor`` turns keeps its frequency, and for a pair in between it is a mixture.

    Parameters
    ----------
    factor : float
        8 in Llama 3.1, 32 in Llama 3.2.
    low_freq_factor, high_freq_factor : float
    original_max_len : int
        The length of the texts of the first training.

    Examples
    --------
    >>> scaling = Llama3Scaling(factor=8.0, original_max_len=100)
    >>> scaling.frequencies(np.array([1.0, 0.1, 0.01])).round(4)
    array([1.    , 0.0298, 0.0012])
    """

    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int = 8192

    def __post_init__(self):
        check_fields(self)
        if self.high_freq_factor <= self.low_freq_factor:
            expected = f"above low_freq_factor={self.low_freq_factor}"
            raise UserError(f"high_freq_factor={self.high_freq_factor}, expected {expected}")

    def frequencies(self, frequencies: Array) -> Array:
        """The frequencies of the pairs, from those without this scaling."""
        n_turns = self.original_max_len * frequencies / (2 * np.pi)
        share = (n_turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        share = np.clip(share, 0, 1)  # of the frequency that is not divided
        return frequencies * (share + (1 - share) / self.factor)


@dataclass(frozen=True)
class Rotary:
    """How queries and keys are turned by their positions: the options of the operation ``rotary``.

    Parameters
    ----------
    base : float
        500000 in Llama 3, for example.
    scaling : float
    pairs : "halves" or "interleaved"
        As in Llama, or as in GPT-J.
    llama3 : Llama3Scaling or dict, optional
        The scaling of Llama 3.1, in place of ``scaling``: it slows only the pairs that turn slowly.

    Examples
    --------
    >>> AttentionSettings(8, rotary=Rotary(base=500000.0)).rotary
    Rotary(base=500000.0, scaling=1.0, pairs='halves', llama3=None)
    """

    base: float = 10000.0
    scaling: float = 1.0
    pairs: Literal["halves", "interleaved"] = "halves"
    llama3: Llama3Scaling | None = None

    def __post_init__(self):
        if isinstance(self.llama3, dict):  # as it was read from a file
            object.__setattr__(self, "llama3", settings_from(Llama3Scaling, self.llama3, "llama3"))
        check_fields(self)
        if self.llama3 is not None and self.scaling != 1:
            both = f"scaling={self.scaling} with llama3={self.llama3}"
            raise UserError(f"{both}, expected one of them")


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """What attention itself computes, besides its arrays.

    Heads, window and rotation are settings of a layer. Functions have the options as keywords.
    Kernels, and whatever stands for several operations, get this record. They say which of its
    fields they know, and with another one that is not at its default the reference computes. So a
    new option is a field here, and a few lines where the scores are computed.

    Parameters
    ----------
    causal : bool
        Each query attends only to the keys up to its own position.
    scale : float, optional
        The factor of the scores; 1/√K if not given.
    dropout_rate : float
        Dropout on the weights.
    softcap : float, optional
        softcap · tanh(score / softcap) replaces each score, so none leaves ±softcap (Gemma 2).

    Examples
    --------
    >>> dict(AttentionOptions(causal=True).keywords)
    {'causal': True, 'scale': None, 'dropout_rate': 0.0, 'softcap': None}
    """

    causal: bool = False
    scale: float | None = None
    dropout_rate: float = 0.0
    softcap: float | None = None

    def __init_subclass__(cls):
        """Write the parameters above into the docstring, in place of "{options}"."""
        insert_parameters(AttentionOptions, cls, "{options}")

    def __post_init__(self):
        check_fields(self)

    @cached_property
    def keywords(self) -> Mapping[str, Any]:
        """The options by name, for ``attention``, which has them as keywords."""
        return MappingProxyType({name: getattr(self, name) for name in OF_ATTENTION})

    @cached_property
    def keywords_of_scores(self) -> Mapping[str, Any]:
        """Those without dropout, for what makes scores or whole weights."""
        return self._keywords_but("dropout_rate")

    @cached_property
    def keywords_of_backward(self) -> Mapping[str, Any]:
        """Those that the backward pass needs: a key that ``causal`` hides has weight 0."""
        return self._keywords_but("causal")

    def _keywords_but(self, name):
        others = {other: value for other, value in self.keywords.items() if other != name}
        return MappingProxyType(others)

    def __getstate__(self):
        """The fields alone: a copy computes again what is computed once for a record."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


OF_ATTENTION = [field.name for field in fields(AttentionOptions)]


@dataclass(frozen=True)
class AttentionSettings(AttentionOptions):
    """How the heads of an attention attend to keys: all but its parameters, its inputs and its
    masks.

    Parameters
    ----------
    n_heads : int
        Number of heads H of the queries.
    n_kv_heads : int, optional
        Number of heads G of the keys and values, which divides H: H / G heads of queries share one
        (Ainslie et al. 2023). H if not given.
    window : int, optional
        Each query of a self-attention attends only to keys at a distance below it: with ``causal``,
        to the last ``window`` ones. Before the operation, each layer makes a mask (T, T) of it, or
        (B, 1, T, T) with a mask of padding, B·T² bytes that it keeps for the backward pass. On the
        CPU, tiles that are hidden entirely are skipped, from T of about 1,000 on.
    rotary : Rotary, optional
        ``layers.self_attention`` turns queries and keys by their positions, before the operation of
        attention.
    d_head : int, optional
        Width K of each head; D / H if not given, which D must be divisible by.
    qk_norm_eps : float, optional
        ``layers.self_attention`` normalises each head of the queries and keys by its root mean
        square, with this eps, before it turns them; its parameters then are also "q_norm" and
        "k_norm", each {"gain": (K,)} (Qwen3).
    {options}

    Examples
    --------
    >>> AttentionSettings(8, n_kv_heads=2).parts
    (8, 2, 2)
    >>> AttentionSettings(0)
    Traceback (most recent call last):
    npformer.UserError: n_heads=0, expected at least 1
    """

    n_heads: int
    n_kv_heads: int | None = None
    _: KW_ONLY
    window: int | None = None
    rotary: Rotary | None = None
    d_head: int | None = None
    qk_norm_eps: float | None = None

    @cached_property
    def parts(self) -> tuple[int, int, int]:
        """The numbers of heads of queries, keys and values, which lie side by side in a packed
        projection.
        """
        n_kv_heads = self.n_heads if self.n_kv_heads is None else self.n_kv_heads
        return self.n_heads, n_kv_heads, n_kv_heads

    @cached_property
    def n_key_heads(self) -> int:
        """The number of heads G of the keys, and of the values."""
        return self.parts[1]

    @cached_property
    def n_packed_heads(self) -> int:
        """The number of heads, H + 2 G, of queries, keys and values together."""
        return sum(self.parts)

    @property
    def layer_options(self) -> dict[str, Any]:
        """The options, by name, that a layer applies before the operation of attention, which would
        ignore them.
        """
        others = {"n_heads", "n_kv_heads", *OF_ATTENTION}
        return {name: getattr(self, name) for name in changed_fields(self) - others}

    @cached_property
    def without_layer_options(self) -> "AttentionSettings":
        """The settings that the operation of attention takes."""
        if not self.layer_options:
            return self
        return AttentionSettings(self.n_heads, self.n_kv_heads, **self.keywords)

    def head_width(self, d_model: int) -> int:
        """The width K of a head in a model of this width.

        >>> AttentionSettings(8).head_width(64), AttentionSettings(8, d_head=16).head_width(64)
        (8, 16)
        """
        return self.widths(d_model)[0] // self.n_heads

    def widths(self, d_model: int) -> list[int]:
        """The widths of the queries, keys and values of all heads, in a model of this width.

        >>> AttentionSettings(8, n_kv_heads=2).widths(64)
        [64, 16, 16]
        >>> AttentionSettings(8).widths(10)
        Traceback (most recent call last):
        npformer.UserError: d_model=10 is not divisible by n_heads=8
        """
        D = f"d_model={shown(d_model)}"
        H = f"n_heads={shown(self.n_heads)}"
        K, rest = divmod(d_model, self.n_heads)
        source = f"{D}, {H}"
        if self.d_head is not None:
            K = self.d_head
            source = f"d_head={shown(K)}"
        elif rest:
            raise UserError(f"{D} is not divisible by {H}")
        if self.rotary is not None and K % 2:
            raise UserError(f"{source}: heads of odd width {shown(K)} cannot be rotary")
        return [n * K for n in self.parts]

    def __post_init__(self):
        check_fields(self)
        if self.n_heads % self.n_key_heads:
            H = shown(self.n_heads)
            G = shown(self.n_key_heads)
            raise UserError(f"n_kv_heads={G}, expected a divisor of n_heads={H}")


@dataclass(frozen=True)
class LayerSettings:
    """The settings of an encoder or decoder layer: all but its parameters, its inputs and its
    masks.

    Parameters
    ----------
    attention : AttentionSettings
        Of the self-attention. ``decoder_layer`` makes it causal, and attention to the memory not
        causal.
    norm : "pre" or "post"
        Normalisation before each sublayer, or after each residual sum; see ``norm_before`` and
        ``add_and_norm``.
    norm_type : "layer_norm" or "rms_norm"
    eps : float, optional
        Of the normalisation; that of the operation if not given.
    activation : "relu", "gelu", "gelu_erf", "silu" or "swiglu"
    dropout_rate : float
        Dropout on the output of each sublayer.
    hidden_dropout_rate : float
        Dropout on the hidden layer.

    Examples
    --------
    >>> LayerSettings(AttentionSettings(8), norm="post").norm
    'post'
    >>> LayerSettings(AttentionSettings(8), activation="tanh")
    Traceback (most recent call last):
    npformer.UserError: activation='tanh', expected 'relu', 'gelu', 'gelu_erf', 'silu' or 'swiglu'
    """

    attention: AttentionSettings
    norm: Literal["pre", "post"] = "pre"
    norm_type: Literal["layer_norm", "rms_norm"] = "layer_norm"
    eps: float | None = None
    activation: Activation = "relu"
    dropout_rate: float = 0.0
    hidden_dropout_rate: float = 0.0

    def __post_init__(self):
        check_fields(self)

    @cached_property
    def norm_eps(self) -> float:
        """``eps``, or that of the operation if it is not given."""
        default = LAYER_NORM_EPS if self.norm_type == "layer_norm" else RMS_NORM_EPS
        return default if self.eps is None else self.eps

    @cached_property
    def as_decoder(self) -> "LayerSettings":
        """The same with a causal self-attention."""
        return replace(self, attention=replace(self.attention, causal=True))

    @cached_property
    def memory_attention(self) -> AttentionSettings:
        """The settings of a decoder's attention to the encoder's output.

        Positions of two sequences cannot be compared, so ``window`` and ``rotary`` do not apply.
        """
        return replace(self.attention.without_layer_options, causal=False)
