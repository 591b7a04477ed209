"""The loss of pairs of predictions that should agree, and its gradient."""

import cupy

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.cross_entropy import differentiated
from npformer.gpu.kernels.linear import linear


@kernel_of(reference.paired_cross_entropy)
def paired_cross_entropy(logits, targets, consistency, ignore_id, label_smoothing, n_tokens, loss_scale):
    dlogits, numbers = cupy.empty(logits.shape, logits.dtype), (label_smoothing, consistency)
    return differentiated("paired_cross_entropy", logits, dlogits, targets, ignore_id, n_tokens, loss_scale, *numbers)


@kernel_of(reference.linear_paired_cross_entropy, as_it_lies="weight")
def linear_paired_cross_entropy(
    x, weight, bias, targets, consistency, ignore_id, label_smoothing, n_tokens, loss_scale
):
    logits, numbers = linear(x, weight, bias), (label_smoothing, consistency)
    return differentiated("paired_cross_entropy", logits, logits, targets, ignore_id, n_tokens, loss_scale, *numbers)
