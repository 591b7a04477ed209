"""The parameter updates of the optimizers: ``reference.sgd_update`` and ``adam_update``, and the
norm of a gradient, in one pass over the flat arrays. ``lion_update`` is left to the reference.

Learning rate, step and gradient scale may be arrays of shape (), so that a recorded update reads
their values at each replay.
"""

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.backend import kernel_of
from npformer.gpu.launch import element_kernel, on_gpu, real, row_kernel
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
    kernel = row_kernel("update", "norms_of_blocks", grad.dtype, norms.size)
    # norms_of_blocks(x, norms, size, length)
    kernel(grad, norms, grad.size, NORM_BLOCK)
    return norms


@kernel_of(reference.sgd_update)
def sgd_update(param, grad, velocity, lr, momentum, nesterov, grad_scale):
    n = param.size
    number = real(param.dtype).type
    kernel = element_kernel("update", "sgd", param.dtype, n)
    # sgd(param, grad, velocity, size, momentum, nesterov, lr, grad_scale)
    kernel(param, grad, velocity, n, number(momentum), nesterov, on_gpu(lr), on_gpu(grad_scale))


@kernel_of(reference.adam_update)
def adam_update(param, grad, m, v, lr, step, beta1, beta2, eps, weight_decay, grad_scale):
    number = real(param.dtype).type
    kernel = element_kernel("update", "adam", param.dtype, param.size)
    # adam(param, grad, m, v, size, one_minus_beta1, one_minus_beta2, eps, weight_decay, lr,
    # m_scale, v_scale, grad_scale)
    kernel(
        param,
        grad,
        m,
        v,
        param.size,
        number(1 - beta1),
        number(1 - beta2),
        number(eps),
        number(weight_decay),
        on_gpu(lr),
        on_gpu(1 / (1 - beta1**step)),
        on_gpu(1 / (1 - beta2**step)),
        on_gpu(grad_scale),
    )
