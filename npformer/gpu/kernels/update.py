"""The parameter updates of the optimizers, in one pass over the flat arrays.

Learning rate, step and gradient scale may be arrays of shape (), so that a recorded update reads
their values at each replay.
"""

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.launch import THREADS, for_each_element, launch, real
from npformer.reference.math.update import NORM_BLOCK


@kernel_of(reference.global_norm)
def global_norm(grad):
    norms = norms_of_blocks(grad.reshape(-1))
    largest = norms.max()  # stays on the GPU: the host does not read it
    can_divide = cupy.isfinite(largest) & (largest > 0)
    divisor = cupy.where(can_divide, largest, 1)
    return divisor * cupy.sqrt(((norms / divisor) ** 2).sum())


@kernel_of(reference.norms_of_blocks)
def norms_of_blocks(grad):
    norms = cupy.empty(-(-grad.size // NORM_BLOCK), np.float64)
    launch(
        "update",
        "norms_of_blocks",
        grad.dtype,
        norms.shape,
        (THREADS,),
        grad,
        norms,
        grad.size,
        NORM_BLOCK,
    )
    return norms


@kernel_of(reference.sgd_update)
def sgd_update(param, grad, velocity, lr, momentum, nesterov, grad_scale):
    options = real(param.dtype).type(momentum), nesterov, *_on_gpu(lr, grad_scale)
    for_each_element(
        "update", "sgd", param.dtype, param.size, param, grad, velocity, param.size, *options
    )


@kernel_of(reference.adam_update)
def adam_update(param, grad, m, v, lr, step, beta1, beta2, eps, weight_decay, grad_scale):
    numbers = map(real(param.dtype).type, (1 - beta1, 1 - beta2, eps, weight_decay))
    there = _on_gpu(lr, 1 / (1 - beta1**step), 1 / (1 - beta2**step), grad_scale)
    for_each_element(
        "update", "adam", param.dtype, param.size, param, grad, m, v, param.size, *numbers, *there
    )


def _on_gpu(*numbers):
    """Each number as a float64 array of shape () on the GPU."""
    return [
        x.astype(np.float64, copy=False)
        if isinstance(x, cupy.ndarray)
        else cupy.full((), x, np.float64)
        for x in numbers
    ]
