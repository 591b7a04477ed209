"""The losses with their gradients: ``reference.cross_entropy`` and ``paired_cross_entropy``, also
after a linear map; a block of threads for each token.

After a linear map the gradient is written over the logits, the largest array of a step.
"""

import cupy

from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.linear import add_bias, linear
from npformer.gpu.launch import on_gpu, real, row_kernel
from npformer.kernels.shared import make_loss_kernels

NOTHING_IGNORED = -1


def _loss_and_gradient(logits, bias, targets, options, may_overwrite):
    """The loss and its gradient, by the kernel for one prediction or two."""
    if bias is not None:
        add_bias(logits, bias)
    dlogits = logits if may_overwrite else cupy.empty(logits.shape, logits.dtype)
    V = logits.shape[-1]
    n = targets.size
    dtype = logits.dtype
    wide = real(dtype)
    ignore_id = NOTHING_IGNORED if options.ignore_id is None else options.ignore_id
    smoothing = wide.type(options.label_smoothing)
    # The weight of each counted token in the mean, times the loss scale.
    share = on_gpu(options.loss_scale / options.n_tokens, wide)
    losses = cupy.empty(n, wide)  # of each token
    if options.consistency is None:
        file = "cross_entropy"
        kernel = row_kernel(file, "cross_entropy", dtype, n)
        # cross_entropy(logits, targets, dlogits, losses, n, ignore_id, smoothing, share)
        kernel(logits, targets, dlogits, losses, V, ignore_id, smoothing, share)
    else:
        file = "paired_cross_entropy"
        consistency = wide.type(options.consistency)
        kernel = row_kernel(file, "paired_cross_entropy", dtype, n)
        # paired_cross_entropy(logits, targets, dlogits, losses, n, ignore_id, smoothing,
        # consistency, share)
        kernel(logits, targets, dlogits, losses, V, ignore_id, smoothing, consistency, share)
    loss = cupy.empty((), wide)
    kernel = row_kernel(file, "add_up", dtype, 1)
    # add_up(x, sum, n)
    kernel(losses, loss, n)
    if isinstance(options.loss_scale, float) and options.loss_scale == 1:
        return loss, dlogits
    return (loss / options.loss_scale).astype(wide), dlogits


make_loss_kernels(kernel_of, linear, _loss_and_gradient)
