"""The math, in plain array code, and the backend that computes with it.

The functions run on NumPy and CuPy arrays, on any float dtype and on complex numbers (which is how
``npformer.gradients`` differentiates them to machine precision). The folder ``math`` has one file
for each idea, with each backward pass directly below its forward pass. Those of ``math`` are the
math alone; those of this module check their arguments first.
"""

from npformer.operations.backend import Backend
from npformer.operations.dispatcher import make_dispatcher
from npformer.reference.math.activations import (
    gelu,
    gelu_backward,
    gelu_erf,
    gelu_erf_backward,
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
from npformer.reference.math.attention import attention, attention_backward
from npformer.reference.math.convolution import conv1d, conv1d_backward
from npformer.reference.math.cross_entropy import cross_entropy, linear_cross_entropy
from npformer.reference.math.decoding import cached_attention, log_softmax_top_k
from npformer.reference.math.dropout import dropout, dropout_backward
from npformer.reference.math.embedding import (
    embed_tokens,
    embed_tokens_backward,
    embedding,
    embedding_backward,
)
from npformer.reference.math.flash_attention import flash_attention, flash_attention_backward
from npformer.reference.math.fused import (
    linear_activation_dropout,
    linear_activation_dropout_backward,
    linear_dropout_residual,
    linear_dropout_residual_backward,
)
from npformer.reference.math.gru import gru, gru_backward
from npformer.reference.math.linear import linear, linear_backward
from npformer.reference.math.lstm import lstm, lstm_backward
from npformer.reference.math.masks import (
    causal_mask,
    from_additive,
    padding_mask,
    to_additive,
)
from npformer.reference.math.normalisation import (
    layer_norm,
    layer_norm_backward,
    rms_norm,
    rms_norm_backward,
)
from npformer.reference.math.packed_attention import (
    cross_attention,
    cross_attention_backward,
    merge_heads,
    self_attention,
    self_attention_backward,
    split_heads,
)
from npformer.reference.math.paired_cross_entropy import (
    linear_paired_cross_entropy,
    paired_cross_entropy,
)
from npformer.reference.math.positions import sinusoidal_encoding
from npformer.reference.math.product import product
from npformer.reference.math.random import derive_key, random_bits, split_key
from npformer.reference.math.regression import huber_loss, mse_loss
from npformer.reference.math.rotary import rotary, rotary_backward
from npformer.reference.math.scores import (
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
from npformer.reference.math.soft_dictionary import (
    exp_cosine,
    exp_cosine_backward,
    is_same,
    soft_lookup,
    soft_lookup_backward,
)
from npformer.reference.math.softmax import (
    log_softmax,
    log_softmax_backward,
    softmax,
    softmax_backward,
)
from npformer.reference.math.update import (
    adam_update,
    global_norm,
    lion_update,
    norms_of_blocks,
    sgd_update,
)

# What is called from outside checks its arguments. The functions of ``math`` call each other
# without.
for _name, _function in list(globals().items()):
    if hasattr(_function, "record"):
        globals()[_name] = make_dispatcher(_function.record)
        globals()[_name].__module__ = __name__
del make_dispatcher


class Ops(Backend):
    """The type of all backends: every operation, with the signature that it has in every backend.

    >>> ops.softmax is softmax, "softmax" in ops.kernels
    (True, False)
    """

    adam_update = staticmethod(adam_update)
    additive_score = staticmethod(additive_score)
    additive_score_backward = staticmethod(additive_score_backward)
    attention = staticmethod(attention)
    attention_backward = staticmethod(attention_backward)
    bilinear_score = staticmethod(bilinear_score)
    bilinear_score_backward = staticmethod(bilinear_score_backward)
    cached_attention = staticmethod(cached_attention)
    conv1d = staticmethod(conv1d)
    conv1d_backward = staticmethod(conv1d_backward)
    cosine_score = staticmethod(cosine_score)
    cosine_score_backward = staticmethod(cosine_score_backward)
    cross_attention = staticmethod(cross_attention)
    cross_attention_backward = staticmethod(cross_attention_backward)
    cross_entropy = staticmethod(cross_entropy)
    dot_score = staticmethod(dot_score)
    dot_score_backward = staticmethod(dot_score_backward)
    dropout = staticmethod(dropout)
    dropout_backward = staticmethod(dropout_backward)
    embed_tokens = staticmethod(embed_tokens)
    embed_tokens_backward = staticmethod(embed_tokens_backward)
    embedding = staticmethod(embedding)
    embedding_backward = staticmethod(embedding_backward)
    exp_cosine = staticmethod(exp_cosine)
    exp_cosine_backward = staticmethod(exp_cosine_backward)
    flash_attention = staticmethod(flash_attention)
    flash_attention_backward = staticmethod(flash_attention_backward)
    from_additive = staticmethod(from_additive)
    gelu = staticmethod(gelu)
    gelu_backward = staticmethod(gelu_backward)
    gelu_erf = staticmethod(gelu_erf)
    gelu_erf_backward = staticmethod(gelu_erf_backward)
    global_norm = staticmethod(global_norm)
    gru = staticmethod(gru)
    gru_backward = staticmethod(gru_backward)
    huber_loss = staticmethod(huber_loss)
    is_same = staticmethod(is_same)
    layer_norm = staticmethod(layer_norm)
    layer_norm_backward = staticmethod(layer_norm_backward)
    linear = staticmethod(linear)
    linear_backward = staticmethod(linear_backward)
    linear_activation_dropout = staticmethod(linear_activation_dropout)
    linear_activation_dropout_backward = staticmethod(linear_activation_dropout_backward)
    linear_cross_entropy = staticmethod(linear_cross_entropy)
    linear_dropout_residual = staticmethod(linear_dropout_residual)
    linear_dropout_residual_backward = staticmethod(linear_dropout_residual_backward)
    linear_paired_cross_entropy = staticmethod(linear_paired_cross_entropy)
    lion_update = staticmethod(lion_update)
    log_softmax = staticmethod(log_softmax)
    log_softmax_backward = staticmethod(log_softmax_backward)
    log_softmax_top_k = staticmethod(log_softmax_top_k)
    lstm = staticmethod(lstm)
    lstm_backward = staticmethod(lstm_backward)
    merge_heads = staticmethod(merge_heads)
    mse_loss = staticmethod(mse_loss)
    norms_of_blocks = staticmethod(norms_of_blocks)
    padding_mask = staticmethod(padding_mask)
    paired_cross_entropy = staticmethod(paired_cross_entropy)
    product = staticmethod(product)
    relu = staticmethod(relu)
    relu_backward = staticmethod(relu_backward)
    rms_norm = staticmethod(rms_norm)
    rms_norm_backward = staticmethod(rms_norm_backward)
    rotary = staticmethod(rotary)
    rotary_backward = staticmethod(rotary_backward)
    scaled_dot_score = staticmethod(scaled_dot_score)
    scaled_dot_score_backward = staticmethod(scaled_dot_score_backward)
    score_attention = staticmethod(score_attention)
    score_attention_backward = staticmethod(score_attention_backward)
    self_attention = staticmethod(self_attention)
    self_attention_backward = staticmethod(self_attention_backward)
    sgd_update = staticmethod(sgd_update)
    sigmoid = staticmethod(sigmoid)
    sigmoid_backward = staticmethod(sigmoid_backward)
    silu = staticmethod(silu)
    silu_backward = staticmethod(silu_backward)
    soft_lookup = staticmethod(soft_lookup)
    soft_lookup_backward = staticmethod(soft_lookup_backward)
    softmax = staticmethod(softmax)
    softmax_backward = staticmethod(softmax_backward)
    split_heads = staticmethod(split_heads)
    swiglu = staticmethod(swiglu)
    swiglu_backward = staticmethod(swiglu_backward)
    tanh = staticmethod(tanh)
    tanh_backward = staticmethod(tanh_backward)
    to_additive = staticmethod(to_additive)


ops = Ops("reference")
