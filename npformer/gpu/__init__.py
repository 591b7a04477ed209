"""CUDA kernels under the names of the reference, on CuPy arrays of float32, float64, float16 and bfloat16.

Whatever is unusual (another dtype, nothing to do, shapes that do not fit) goes to the reference, which computes it on
the same arrays or says what is wrong; and an operation that has no kernel is the reference's own.
"""

from npformer.reference import *  # noqa: I001, first everything, then what has a kernel
from npformer.reference import __all__ as __all__

from npformer.gpu.activations import gelu, gelu_backward, relu, relu_backward, silu, silu_backward
from npformer.gpu.attention import attention, attention_backward
from npformer.gpu.blas import tf32
from npformer.gpu.convolution import conv1d, conv1d_backward
from npformer.gpu.cross_entropy import (
    cross_entropy,
    linear_cross_entropy,
    linear_paired_cross_entropy,
    paired_cross_entropy,
)
from npformer.gpu.cudnn import cudnn_attention
from npformer.gpu.decoding import cached_attention, decoder_layer_step, log_softmax_top_k
from npformer.gpu.dropout import dropout, dropout_backward
from npformer.gpu.embedding import embed_tokens, embed_tokens_backward, embedding, embedding_backward
from npformer.gpu.flash_attention import flash_attention, flash_attention_backward
from npformer.gpu.fused import (
    linear_activation_dropout,
    linear_activation_dropout_backward,
    linear_dropout_residual,
    linear_dropout_residual_backward,
)
from npformer.gpu.gru import gru, gru_backward
from npformer.gpu.layer_norm import layer_norm, layer_norm_backward
from npformer.gpu.linear import linear, linear_backward
from npformer.gpu.lstm import lstm, lstm_backward
from npformer.gpu.packed_attention import (
    cross_attention,
    cross_attention_backward,
    self_attention,
    self_attention_backward,
)
from npformer.gpu.product import product
from npformer.gpu.recording import Recorder
from npformer.gpu.softmax import log_softmax, log_softmax_backward, softmax, softmax_backward
from npformer.gpu.update import adam_update, global_norm, judge_gradient, sgd_update
