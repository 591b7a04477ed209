"""The math, in plain array code: one idea per file, each backward pass directly below its forward pass.

The functions run on NumPy and CuPy arrays, on any float dtype and on complex numbers (which is how
``npformer.gradcheck`` differentiates them to machine precision). Some modules have the same name as a
function that they define; ``npformer.reference.<name>`` is then the function.
"""

from npformer.reference.activations import (
    gelu,
    gelu_backward,
    relu,
    relu_backward,
    sigmoid,
    sigmoid_backward,
    silu,
    silu_backward,
    swiglu,
    swiglu_backward,
    tanh,
    tanh_backward,
)
from npformer.reference.attention import attention, attention_backward
from npformer.reference.convolution import conv1d, conv1d_backward
from npformer.reference.cross_entropy import cross_entropy, linear_cross_entropy
from npformer.reference.decoding import cached_attention, decoder_layer_step, log_softmax_top_k
from npformer.reference.dropout import dropout, dropout_backward
from npformer.reference.embedding import embed_tokens, embed_tokens_backward, embedding, embedding_backward
from npformer.reference.flash_attention import flash_attention, flash_attention_backward
from npformer.reference.fused import (
    linear_activation_dropout,
    linear_activation_dropout_backward,
    linear_dropout_residual,
    linear_dropout_residual_backward,
)
from npformer.reference.gru import gru, gru_backward
from npformer.reference.heads import merge_heads, split_heads
from npformer.reference.layer_norm import layer_norm, layer_norm_backward
from npformer.reference.linear import linear, linear_backward
from npformer.reference.lstm import lstm, lstm_backward
from npformer.reference.masks import causal_mask, from_additive, padding_mask, to_additive
from npformer.reference.packed_attention import (
    cross_attention,
    cross_attention_backward,
    self_attention,
    self_attention_backward,
)
from npformer.reference.paired_cross_entropy import linear_paired_cross_entropy, paired_cross_entropy
from npformer.reference.positions import sinusoidal_encoding
from npformer.reference.product import product
from npformer.reference.random import derive_key, random_bits, split_key
from npformer.reference.rms_norm import rms_norm, rms_norm_backward
from npformer.reference.scores import (
    additive_score,
    additive_score_backward,
    bilinear_score,
    bilinear_score_backward,
    cosine_score,
    cosine_score_backward,
    dot_score,
    dot_score_backward,
    scaled_dot_score,
    scaled_dot_score_backward,
    score_attention,
    score_attention_backward,
)
from npformer.reference.soft_dictionary import (
    exp_cosine,
    exp_cosine_backward,
    is_same,
    soft_lookup,
    soft_lookup_backward,
)
from npformer.reference.softmax import log_softmax, log_softmax_backward, softmax, softmax_backward
from npformer.reference.update import adam_update, global_norm, norms_of_blocks, sgd_update

__all__ = [name for name, value in globals().items() if callable(value)]

from npformer.runtime.host import *
