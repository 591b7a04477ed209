"""The math, in plain array code, and the backend that computes with it.

The functions run on NumPy and CuPy arrays, on any float dtype and on complex numbers (which is how
``npformer.gradients`` differentiates them to machine precision). The folder ``math`` has one file
for each idea, with each backward pass directly below its forward pass. Those of ``math`` are the
math alone; those of this module check their arguments first.
"""

from npformer.operations.backend import Backend
from npformer.operations.formula import checked
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


class Ops(Backend):
    """The type of all backends: every operation, with the signature that it has in every backend.

    >>> ops.softmax is softmax, "softmax" in ops.kernels
    (True, False)
    """

    adam_update = checked(adam_update)
    additive_score = checked(additive_score)
    additive_score_backward = checked(additive_score_backward)
    attention = checked(attention)
    attention_backward = checked(attention_backward)
    bilinear_score = checked(bilinear_score)
    bilinear_score_backward = checked(bilinear_score_backward)
    cached_attention = checked(cached_attention)
    conv1d = checked(conv1d)
    conv1d_backward = checked(conv1d_backward)
    cosine_score = checked(cosine_score)
    cosine_score_backward = checked(cosine_score_backward)
    cross_attention = checked(cross_attention)
    cross_attention_backward = checked(cross_attention_backward)
    cross_entropy = checked(cross_entropy)
    dot_score = checked(dot_score)
    dot_score_backward = checked(dot_score_backward)
    dropout = checked(dropout)
    dropout_backward = checked(dropout_backward)
    embed_tokens = checked(embed_tokens)
    embed_tokens_backward = checked(embed_tokens_backward)
    embedding = checked(embedding)
    embedding_backward = checked(embedding_backward)
    exp_cosine = checked(exp_cosine)
    exp_cosine_backward = checked(exp_cosine_backward)
    flash_attention = checked(flash_attention)
    flash_attention_backward = checked(flash_attention_backward)
    from_additive = checked(from_additive)
    gelu = checked(gelu)
    gelu_backward = checked(gelu_backward)
    gelu_erf = checked(gelu_erf)
    gelu_erf_backward = checked(gelu_erf_backward)
    global_norm = checked(global_norm)
    gru = checked(gru)
    gru_backward = checked(gru_backward)
    huber_loss = checked(huber_loss)
    is_same = checked(is_same)
    layer_norm = checked(layer_norm)
    layer_norm_backward = checked(layer_norm_backward)
    linear = checked(linear)
    linear_backward = checked(linear_backward)
    linear_activation_dropout = checked(linear_activation_dropout)
    linear_activation_dropout_backward = checked(linear_activation_dropout_backward)
    linear_cross_entropy = checked(linear_cross_entropy)
    linear_dropout_residual = checked(linear_dropout_residual)
    linear_dropout_residual_backward = checked(linear_dropout_residual_backward)
    linear_paired_cross_entropy = checked(linear_paired_cross_entropy)
    lion_update = checked(lion_update)
    log_softmax = checked(log_softmax)
    log_softmax_backward = checked(log_softmax_backward)
    log_softmax_top_k = checked(log_softmax_top_k)
    lstm = checked(lstm)
    lstm_backward = checked(lstm_backward)
    merge_heads = checked(merge_heads)
    mse_loss = checked(mse_loss)
    norms_of_blocks = checked(norms_of_blocks)
    padding_mask = checked(padding_mask)
    paired_cross_entropy = checked(paired_cross_entropy)
    product = checked(product)
    relu = checked(relu)
    relu_backward = checked(relu_backward)
    rms_norm = checked(rms_norm)
    rms_norm_backward = checked(rms_norm_backward)
    rotary = checked(rotary)
    rotary_backward = checked(rotary_backward)
    scaled_dot_score = checked(scaled_dot_score)
    scaled_dot_score_backward = checked(scaled_dot_score_backward)
    score_attention = checked(score_attention)
    score_attention_backward = checked(score_attention_backward)
    self_attention = checked(self_attention)
    self_attention_backward = checked(self_attention_backward)
    sgd_update = checked(sgd_update)
    sigmoid = checked(sigmoid)
    sigmoid_backward = checked(sigmoid_backward)
    silu = checked(silu)
    silu_backward = checked(silu_backward)
    soft_lookup = checked(soft_lookup)
    soft_lookup_backward = checked(soft_lookup_backward)
    softmax = checked(softmax)
    softmax_backward = checked(softmax_backward)
    split_heads = checked(split_heads)
    swiglu = checked(swiglu)
    swiglu_backward = checked(swiglu_backward)
    tanh = checked(tanh)
    tanh_backward = checked(tanh_backward)
    to_additive = checked(to_additive)


# In this module, too, a name is that of the operation, which checks its arguments. Only the
# functions of ``math`` call each other without.
for _name in Ops.names():
    globals()[_name] = getattr(Ops, _name)
    globals()[_name].__module__ = __name__
del checked

ops = Ops("reference")
