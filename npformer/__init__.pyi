"""The names of ``npformer``, and their files. ``__init__.py`` reads this, as type checkers do."""

from npformer import (
    cpu as cpu,
    data as data,
    decoding as decoding,
    diagnosis as diagnosis,
    gpu as gpu,
    gradients as gradients,
    language as language,
    layers as layers,
    models as models,
    plots as plots,
    pretrained as pretrained,
    reference as reference,
    text as text,
    tokens as tokens,
    training as training,
    translation as translation,
    tree as tree,
)
from npformer.backends import get_backend as get_backend
from npformer.config import show_config as show_config
from npformer.decoding import (
    beam_search as beam_search,
    greedy_decode as greedy_decode,
    log_probability as log_probability,
    sample as sample,
)
from npformer.diagnosis import diagnose as diagnose
from npformer.errors import UserError as UserError
from npformer.gradients import GradientError as GradientError, gradcheck as gradcheck
from npformer.models import (
    ByteNet as ByteNet,
    Encoder as Encoder,
    LanguageModel as LanguageModel,
    Recurrent as Recurrent,
    SequenceAutoencoder as SequenceAutoencoder,
    Transformer as Transformer,
)
from npformer.operations.explain import explain as explain
from npformer.quantized import quantize as quantize
from npformer.reference import (
    attention as attention,
    attention_backward as attention_backward,
    causal_mask as causal_mask,
    cross_entropy as cross_entropy,
    derive_key as derive_key,
    dropout as dropout,
    dropout_backward as dropout_backward,
    embedding as embedding,
    embedding_backward as embedding_backward,
    flash_attention as flash_attention,
    flash_attention_backward as flash_attention_backward,
    from_additive as from_additive,
    gelu as gelu,
    gelu_backward as gelu_backward,
    huber_loss as huber_loss,
    layer_norm as layer_norm,
    layer_norm_backward as layer_norm_backward,
    linear as linear,
    linear_backward as linear_backward,
    log_softmax as log_softmax,
    log_softmax_backward as log_softmax_backward,
    merge_heads as merge_heads,
    mse_loss as mse_loss,
    padding_mask as padding_mask,
    relu as relu,
    relu_backward as relu_backward,
    rms_norm as rms_norm,
    rms_norm_backward as rms_norm_backward,
    rotary as rotary,
    rotary_backward as rotary_backward,
    sigmoid as sigmoid,
    sigmoid_backward as sigmoid_backward,
    silu as silu,
    silu_backward as silu_backward,
    sinusoidal_encoding as sinusoidal_encoding,
    softmax as softmax,
    softmax_backward as softmax_backward,
    split_heads as split_heads,
    split_key as split_key,
    tanh as tanh,
    tanh_backward as tanh_backward,
    to_additive as to_additive,
)
from npformer.text import (
    CopyTask as CopyTask,
    batches as batches,
)
from npformer.training import (
    SGD as SGD,
    Adam as Adam,
    AdamW as AdamW,
    Lion as Lion,
    NonFiniteError as NonFiniteError,
    ParameterAverage as ParameterAverage,
    Trainer as Trainer,
    clip_by_global_norm as clip_by_global_norm,
    compile_kernels as compile_kernels,
    inverse_sqrt as inverse_sqrt,
    noam as noam,
    warmup_cosine as warmup_cosine,
)

__version__: str
