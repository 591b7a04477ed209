"""What an optimizer does to the parameters, in one pass over the flat arrays.

Learning rate, step and scale of the gradient may be arrays (): what is recorded reads them when it is replayed.
"""

import math

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.launch import THREADS, for_each_element, launch, real
from npformer.gpu.room import kernel_of

BLOCKS = 1024  # that add up squares, at most


@kernel_of(reference.global_norm, dtypes="float16 bfloat16 float32")  # squares of float64 may overflow
def global_norm(grad):
    return math.sqrt(float(_sum_of_squares(grad)))


def judge_gradient(loss, grad, unscale, clip_norm):
    """What a step needs to know of its gradient, without the host.

    Parameters
    ----------
    loss : ()
    grad : (n,)
        float32; of float64 no square may overflow.
    unscale : float64 ()
        What both are to be multiplied by, as the loss was scaled.
    clip_norm : float, optional

    Returns
    -------
    loss_and_norm : (2,)
        Unscaled; the norm before it is clipped.
    grad_scale : ()
        For the update: NaN, which is no update, if the loss or the norm is not finite.
    """
    loss, norm = loss.astype(np.float64) * unscale, cupy.sqrt(_sum_of_squares(grad)) * unscale
    factor = unscale if clip_norm is None else unscale * clip_norm / cupy.maximum(norm, clip_norm)
    return cupy.stack([loss, norm]), cupy.where(cupy.isfinite(loss + norm), factor, np.nan)


def _sum_of_squares(grad):
    n_blocks = min(BLOCKS, -(-grad.size // THREADS))
    sums, total = cupy.empty(n_blocks, np.float64), cupy.empty((), np.float64)
    launch("update", "sums_of_squares", grad.dtype, (n_blocks,), (THREADS,), grad, sums, grad.size)
    launch("update", "add_sums", grad.dtype, (1,), (THREADS,), sums, total, n_blocks)
    return total


@kernel_of(reference.sgd_update)
def sgd_update(param, grad, velocity, lr, momentum, nesterov, grad_scale):
    options = real(param.dtype).type(momentum), nesterov, *_on_gpu(lr, grad_scale)
    for_each_element("update", "sgd", param.dtype, param.size, param, grad, velocity, param.size, *options)


@kernel_of(reference.adam_update)
def adam_update(param, grad, m, v, lr, step, beta1, beta2, eps, weight_decay, grad_scale):
    numbers = map(real(param.dtype).type, (1 - beta1, 1 - beta2, eps, weight_decay))
    there = _on_gpu(lr, 1 / (1 - beta1**step), 1 / (1 - beta2**step), grad_scale)
    for_each_element("update", "adam", param.dtype, param.size, param, grad, m, v, param.size, *numbers, *there)


def _on_gpu(*numbers):
    """Each as a float64 () there."""
    return [
        x.astype(np.float64, copy=False) if isinstance(x, cupy.ndarray) else cupy.full((), x, np.float64)
        for x in numbers
    ]
