"""The math, in plain array code, and the backend that computes with it.

The functions run on NumPy and CuPy arrays, on any float dtype and on complex numbers (which is how
``npformer.gradients`` differentiates them to machine precision). The folder ``math`` has one file
for each idea, with each backward pass directly below its forward pass. Those of ``math`` are the
math alone; those of this module check their arguments first.
"""

from npformer.operations.backend import Backend
from npformer.operations.formula import operation_of
from npformer.reference.math.activations import (
    gelu as gelu,
    gelu_backward as gelu_backward,
    gelu_erf as gelu_erf,
    gelu_erf_backward as gelu_erf_backward,
    relu as relu,
    relu_backward as relu_backward,
    sigmoid as sigmoid,
    sigmoid_backward as sigmoid_backward,
    silu as silu,
    silu_backward as silu_backward,
    swiglu as swiglu,
    swiglu_backward as swiglu_backward,
    tanh as tanh,
    tanh_backward as tanh_backward,
)
from npformer.reference.math.attention import (
    attention as attention,
    attention_backward as attention_backward,
)
from npformer.reference.math.convolution import conv1d as conv1d, conv1d_backward as conv1d_backward
from npformer.reference.math.cross_entropy import (
    cross_entropy as cross_entropy,
    linear_cross_entropy as linear_cross_entropy,
)
from npformer.reference.math.decoding import (
    cached_attention as cached_attention,
    log_softmax_top_k as log_softmax_top_k,
)
from npformer.reference.math.dropout import dropout as dropout, dropout_backward as dropout_backward
from npformer.reference.math.embedding import (
    embed_tokens as embed_tokens,
    embed_tokens_backward as embed_tokens_backward,
    embedding as embedding,
    embedding_backward as embedding_backward,
)
from npformer.reference.math.flash_attention import (
    flash_attention as flash_attention,
    flash_attention_backward as flash_attention_backward,
)
from npformer.reference.math.fused import (
    linear_activation_dropout as linear_activation_dropout,
    linear_activation_dropout_backward as linear_activation_dropout_backward,
    linear_dropout_residual as linear_dropout_residual,
    linear_dropout_residual_backward as linear_dropout_residual_backward,
)
from npformer.reference.math.gru import gru as gru, gru_backward as gru_backward
from npformer.reference.math.linear import linear as linear, linear_backward as linear_backward
from npformer.reference.math.lstm import lstm as lstm, lstm_backward as lstm_backward
from npformer.reference.math.masks import (
    causal_mask as causal_mask,
    from_additive as from_additive,
    padding_mask as padding_mask,
    to_additive as to_additive,
)
from npformer.reference.math.normalisation import (
    layer_norm as layer_norm,
    layer_norm_backward as layer_norm_backward,
    rms_norm as rms_norm,
    rms_norm_backward as rms_norm_backward,
)
from npformer.reference.math.packed_attention import (
    cross_attention as cross_attention,
    cross_attention_backward as cross_attention_backward,
    merge_heads as merge_heads,
    self_attention as self_attention,
    self_attention_backward as self_attention_backward,
    split_heads as split_heads,
)
from npformer.reference.math.paired_cross_entropy import (
    linear_paired_cross_entropy as linear_paired_cross_entropy,
    paired_cross_entropy as paired_cross_entropy,
)
from npformer.reference.math.positions import sinusoidal_encoding as sinusoidal_encoding
from npformer.reference.math.product import product as product
from npformer.reference.math.random import (
    derive_key as derive_key,
    random_bits as random_bits,
    split_key as split_key,
)
from npformer.reference.math.regression import huber_loss as huber_loss, mse_loss as mse_loss
from npformer.reference.math.rotary import rotary as rotary, rotary_backward as rotary_backward
from npformer.reference.math.scores import (
    additive_score as additive_score,
    additive_score_backward as additive_score_backward,
    bilinear_score as bilinear_score,
    bilinear_score_backward as bilinear_score_backward,
    cosine_score as cosine_score,
    cosine_score_backward as cosine_score_backward,
    dot_score as dot_score,
    dot_score_backward as dot_score_backward,
    scaled_dot_score as scaled_dot_score,
    scaled_dot_score_backward as scaled_dot_score_backward,
    score_attention as score_attention,
    score_attention_backward as score_attention_backward,
)
from npformer.reference.math.soft_dictionary import (
    exp_cosine as exp_cosine,
    exp_cosine_backward as exp_cosine_backward,
    is_same as is_same,
    soft_lookup as soft_lookup,
    soft_lookup_backward as soft_lookup_backward,
)
from npformer.reference.math.softmax import (
    log_softmax as log_softmax,
    log_softmax_backward as log_softmax_backward,
    softmax as softmax,
    softmax_backward as softmax_backward,
)
from npformer.reference.math.update import (
    adam_update as adam_update,
    global_norm as global_norm,
    lion_update as lion_update,
    norms_of_blocks as norms_of_blocks,
    sgd_update as sgd_update,
)


class Ops(Backend):
    """The type of all backends: every operation, with the signature that it has in every backend.

    >>> ops.softmax is softmax, "softmax" in ops.kernels
    (True, False)
    """

    adam_update = operation_of(adam_update)
    additive_score = operation_of(additive_score)
    additive_score_backward = operation_of(additive_score_backward)
    attention = operation_of(attention)
    attention_backward = operation_of(attention_backward)
    bilinear_score = operation_of(bilinear_score)
    bilinear_score_backward = operation_of(bilinear_score_backward)
    cached_attention = operation_of(cached_attention)
    conv1d = operation_of(conv1d)
    conv1d_backward = operation_of(conv1d_backward)
    cosine_score = operation_of(cosine_score)
    cosine_score_backward = operation_of(cosine_score_backward)
    cross_attention = operation_of(cross_attention)
    cross_attention_backward = operation_of(cross_attention_backward)
    cross_entropy = operation_of(cross_entropy)
    dot_score = operation_of(dot_score)
    dot_score_backward = operation_of(dot_score_backward)
    dropout = operation_of(dropout)
    dropout_backward = operation_of(dropout_backward)
    embed_tokens = operation_of(embed_tokens)
    embed_tokens_backward = operation_of(embed_tokens_backward)
    embedding = operation_of(embedding)
    embedding_backward = operation_of(embedding_backward)
    exp_cosine = operation_of(exp_cosine)
    exp_cosine_backward = operation_of(exp_cosine_backward)
    flash_attention = operation_of(flash_attention)
    flash_attention_backward = operation_of(flash_attention_backward)
    from_additive = operation_of(from_additive)
    gelu = operation_of(gelu)
    gelu_backward = operation_of(gelu_backward)
    gelu_erf = operation_of(gelu_erf)
    gelu_erf_backward = operation_of(gelu_erf_backward)
    global_norm = operation_of(global_norm)
    gru = operation_of(gru)
    gru_backward = operation_of(gru_backward)
    huber_loss = operation_of(huber_loss)
    is_same = operation_of(is_same)
    layer_norm = operation_of(layer_norm)
    layer_norm_backward = operation_of(layer_norm_backward)
    linear = operation_of(linear)
    linear_backward = operation_of(linear_backward)
    linear_activation_dropout = operation_of(linear_activation_dropout)
    linear_activation_dropout_backward = operation_of(linear_activation_dropout_backward)
    linear_cross_entropy = operation_of(linear_cross_entropy)
    linear_dropout_residual = operation_of(linear_dropout_residual)
    linear_dropout_residual_backward = operation_of(linear_dropout_residual_backward)
    linear_paired_cross_entropy = operation_of(linear_paired_cross_entropy)
    lion_update = operation_of(lion_update)
    log_softmax = operation_of(log_softmax)
    log_softmax_backward = operation_of(log_softmax_backward)
    log_softmax_top_k = operation_of(log_softmax_top_k)
    lstm = operation_of(lstm)
    lstm_backward = operation_of(lstm_backward)
    merge_heads = operation_of(merge_heads)
    mse_loss = operation_of(mse_loss)
    norms_of_blocks = operation_of(norms_of_blocks)
    padding_mask = operation_of(padding_mask)
    paired_cross_entropy = operation_of(paired_cross_entropy)
    product = operation_of(product)
    relu = operation_of(relu)
    relu_backward = operation_of(relu_backward)
    rms_norm = operation_of(rms_norm)
    rms_norm_backward = operation_of(rms_norm_backward)
    rotary = operation_of(rotary)
    rotary_backward = operation_of(rotary_backward)
    scaled_dot_score = operation_of(scaled_dot_score)
    scaled_dot_score_backward = operation_of(scaled_dot_score_backward)
    score_attention = operation_of(score_attention)
    score_attention_backward = operation_of(score_attention_backward)
    self_attention = operation_of(self_attention)
    self_attention_backward = operation_of(self_attention_backward)
    sgd_update = operation_of(sgd_update)
    sigmoid = operation_of(sigmoid)
    sigmoid_backward = operation_of(sigmoid_backward)
    silu = operation_of(silu)
    silu_backward = operation_of(silu_backward)
    soft_lookup = operation_of(soft_lookup)
    soft_lookup_backward = operation_of(soft_lookup_backward)
    softmax = operation_of(softmax)
    softmax_backward = operation_of(softmax_backward)
    split_heads = operation_of(split_heads)
    swiglu = operation_of(swiglu)
    swiglu_backward = operation_of(swiglu_backward)
    tanh = operation_of(tanh)
    tanh_backward = operation_of(tanh_backward)
    to_additive = operation_of(to_additive)


# In this module, too, a name is that of the operation, which checks its arguments: it replaces the
# imported function of the math alone, which only the functions of ``math`` call.
for _name in Ops.names():
    globals()[_name] = getattr(Ops, _name)
    globals()[_name].__module__ = __name__
del operation_of, _name

ops = Ops("reference")
