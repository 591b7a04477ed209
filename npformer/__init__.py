"""npformer: the Transformer from scratch in NumPy, every backward pass written by hand.

One letter for each axis, everywhere: ``B`` batch, ``T`` query or target length, ``S`` key or source length, ``D`` model
width, ``H`` heads, ``K`` head width (= D/H), ``F`` feed-forward width, ``V`` vocabulary, ``N`` layers.

The names below are the operations that people call, the models, what trains them and what decodes from them. All other
operations are in ``npformer.reference``, the building blocks of models in ``npformer.layers``. The import needs NumPy
alone.
"""

from typing import TYPE_CHECKING

from npformer import layers as layers
from npformer import reference as reference
from npformer import tree as tree
from npformer.backends import get_backend
from npformer.calls import explain
from npformer.config import show_config
from npformer.data import CopyTask
from npformer.decoding import beam_search, greedy_decode, log_probability, sample
from npformer.models import ByteNet, Recurrent, SequenceAutoencoder, Transformer
from npformer.reference import (
    attention,
    attention_backward,
    causal_mask,
    cross_entropy,
    derive_key,
    dropout,
    dropout_backward,
    embedding,
    embedding_backward,
    flash_attention,
    flash_attention_backward,
    from_additive,
    gelu,
    gelu_backward,
    layer_norm,
    layer_norm_backward,
    linear,
    linear_backward,
    log_softmax,
    log_softmax_backward,
    merge_heads,
    padding_mask,
    relu,
    relu_backward,
    rms_norm,
    rms_norm_backward,
    sigmoid,
    sigmoid_backward,
    silu,
    silu_backward,
    sinusoidal_encoding,
    softmax,
    softmax_backward,
    split_heads,
    split_key,
    tanh,
    tanh_backward,
    to_additive,
)
from npformer.training import (
    SGD,
    Adam,
    AdamW,
    NonFiniteError,
    ParameterAverage,
    Trainer,
    constant,
    inverse_sqrt,
    noam,
    warmup_cosine,
)

if TYPE_CHECKING:
    from npformer.gradcheck import gradcheck
else:
    from npformer import gradcheck  # a package that can be called, which type checkers do not know

__version__ = "0.2.0"

__all__ = [
    "attention",
    "attention_backward",
    "causal_mask",
    "cross_entropy",
    "derive_key",
    "dropout",
    "dropout_backward",
    "embedding",
    "embedding_backward",
    "flash_attention",
    "flash_attention_backward",
    "from_additive",
    "gelu",
    "gelu_backward",
    "layer_norm",
    "layer_norm_backward",
    "linear",
    "linear_backward",
    "log_softmax",
    "log_softmax_backward",
    "merge_heads",
    "padding_mask",
    "relu",
    "relu_backward",
    "rms_norm",
    "rms_norm_backward",
    "sigmoid",
    "sigmoid_backward",
    "silu",
    "silu_backward",
    "sinusoidal_encoding",
    "softmax",
    "softmax_backward",
    "split_heads",
    "split_key",
    "tanh",
    "tanh_backward",
    "to_additive",
    "get_backend",
    "explain",
    "show_config",
    "CopyTask",
    "beam_search",
    "greedy_decode",
    "log_probability",
    "sample",
    "gradcheck",
    "ByteNet",
    "Recurrent",
    "SequenceAutoencoder",
    "Transformer",
    "SGD",
    "Adam",
    "AdamW",
    "NonFiniteError",
    "ParameterAverage",
    "Trainer",
    "constant",
    "inverse_sqrt",
    "noam",
    "warmup_cosine",
    "layers",
    "reference",
    "tree",
]
