"""The losses and their gradients, a block of threads for each token."""

import cupy

from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.linear import add_bias, linear
from npformer.gpu.launch import THREADS, for_each_row, launch, real
from npformer.kernels.shared import make_loss_kernels

NOTHING_IGNORED = -1


def _differentiated(
    logits, bias, may_overwrite, targets, ignore_id, n_tokens, loss_scale, *numbers
):
    """The loss and its gradient, by the kernel for logits (..., V) or (2, ..., V), whose file has
    its name.
    """
    if n_tokens is None:
        n_tokens = targets.size if ignore_id is None else int((targets != ignore_id).sum())
        if n_tokens == 0:
            return NotImplemented  # there is no token to count: the reference warns about it
    if bias is not None:
        add_bias(logits, bias)
    dlogits = logits if may_overwrite else cupy.empty(logits.shape, logits.dtype)
    kernel = "cross_entropy" if logits.ndim == targets.ndim + 1 else "paired_cross_entropy"
    V, n, dtype, wide = logits.shape[-1], targets.size, logits.dtype, real(logits.dtype)
    # the weight of each counted token in the mean, times the loss scale
    share = loss_scale / n_tokens
    share = share.astype(wide) if isinstance(share, cupy.ndarray) else cupy.full((), share, wide)
    losses, loss = cupy.empty(n, wide), cupy.empty((), wide)
    ignored = NOTHING_IGNORED if ignore_id is None else ignore_id
    numbers = map(wide.type, numbers)
    for_each_row(
        kernel, kernel, dtype, n, logits, targets, dlogits, losses, V, ignored, *numbers, share
    )
    launch(kernel, "add_up", dtype, (1,), (THREADS,), losses, loss, n)
    return loss if _is_one(loss_scale) else (loss / loss_scale).astype(wide), dlogits


def _is_one(loss_scale):
    return isinstance(loss_scale, float) and loss_scale == 1


make_loss_kernels(kernel_of, linear, _differentiated)
