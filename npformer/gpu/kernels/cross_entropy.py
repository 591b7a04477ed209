"""The losses and their gradients, a block of threads for each token."""

import cupy

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.linear import linear
from npformer.gpu.launch import THREADS, for_each_row, launch, real

NOTHING_IGNORED = -1


@kernel_of(reference.cross_entropy)
def cross_entropy(logits, targets, ignore_id, label_smoothing, n_tokens, loss_scale):
    dlogits = cupy.empty(logits.shape, logits.dtype)
    return _differentiated("cross_entropy", logits, dlogits, targets, ignore_id, n_tokens, loss_scale, label_smoothing)


@kernel_of(reference.linear_cross_entropy, as_it_lies="weight")
def linear_cross_entropy(x, weight, bias, targets, ignore_id, label_smoothing, n_tokens, loss_scale):
    logits = linear(x, weight, bias)  # the gradient is written over them
    return _differentiated("cross_entropy", logits, logits, targets, ignore_id, n_tokens, loss_scale, label_smoothing)


@kernel_of(reference.paired_cross_entropy)
def paired_cross_entropy(logits, targets, consistency, ignore_id, label_smoothing, n_tokens, loss_scale):
    dlogits, numbers = cupy.empty(logits.shape, logits.dtype), (label_smoothing, consistency)
    return _differentiated("paired_cross_entropy", logits, dlogits, targets, ignore_id, n_tokens, loss_scale, *numbers)


@kernel_of(reference.linear_paired_cross_entropy, as_it_lies="weight")
def linear_paired_cross_entropy(
    x, weight, bias, targets, consistency, ignore_id, label_smoothing, n_tokens, loss_scale
):
    logits, numbers = linear(x, weight, bias), (label_smoothing, consistency)
    return _differentiated("paired_cross_entropy", logits, logits, targets, ignore_id, n_tokens, loss_scale, *numbers)


def _differentiated(kernel, logits, dlogits, targets, ignore_id, n_tokens, loss_scale, *numbers):
    """The loss, and its gradient in ``dlogits``, by the kernel with this name in the file with this name."""
    if n_tokens is None:
        n_tokens = targets.size if ignore_id is None else int((targets != ignore_id).sum())
        if n_tokens == 0:
            return NotImplemented  # there is no token to count: the reference warns about it
    V, n, dtype, wide = logits.shape[-1], targets.size, logits.dtype, real(logits.dtype)
    share = loss_scale / n_tokens  # the weight of each counted token in the mean, times the loss scale
    share = share.astype(wide) if isinstance(share, cupy.ndarray) else cupy.full((), share, wide)
    losses, loss = cupy.empty(n, wide), cupy.empty((), wide)
    ignored = NOTHING_IGNORED if ignore_id is None else ignore_id
    numbers = map(wide.type, numbers)
    for_each_row(kernel, kernel, dtype, n, logits, targets, dlogits, losses, V, ignored, *numbers, share)
    launch(kernel, "add_up", dtype, (1,), (THREADS,), losses, loss, n)
    return loss if _is_one(loss_scale) else (loss / loss_scale).astype(wide), dlogits


def _is_one(loss_scale):
    return isinstance(loss_scale, float) and loss_scale == 1
