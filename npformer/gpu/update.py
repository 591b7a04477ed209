"""What an optimizer does to the parameters, in one pass over the flat arrays."""

import math

import cupy
import numpy as np

from npformer import reference
from npformer.gpu.arrays import contiguous, size_of, suit
from npformer.gpu.launch import THREADS, for_each_element, launch
from npformer.reference.checks import check_positive

BLOCKS = 1024  # that add up squares, at most


def global_norm(grad):
    """As ``reference.global_norm``."""
    if not suit(grad) or grad.dtype == np.float64:  # its squares may overflow
        return reference.global_norm(grad)
    grad = contiguous(grad)
    n_blocks = min(BLOCKS, -(-grad.size // THREADS))
    sums, total = cupy.empty(n_blocks, np.float64), cupy.empty((), np.float64)
    launch("norm", "sums_of_squares", grad.dtype, (n_blocks,), (THREADS,), grad, sums, *size_of(grad.size))
    launch("norm", "add_sums", grad.dtype, (1,), (THREADS,), sums, total, *size_of(n_blocks))
    return math.sqrt(float(total))


def sgd_update(param, grad, velocity, *, lr, momentum=0.0, nesterov=False, grad_scale=1.0):
    """As ``reference.sgd_update``."""
    arrays = (param, grad) if velocity is None else (param, grad, velocity)
    if not _flat(*arrays) or not _plain(lr, momentum, grad_scale) or (velocity is None and (momentum or nesterov)):
        options = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "grad_scale": grad_scale}
        reference.sgd_update(param, grad, velocity, **options)
        return
    number = param.dtype.type
    options = number(lr), number(momentum), np.int32(nesterov), number(grad_scale)
    for_each_element("update", "sgd", param.dtype, param.size, param, grad, velocity, *size_of(param.size), *options)


def adam_update(param, grad, m, v, *, lr, step, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, grad_scale=1.0):
    """As ``reference.adam_update``."""
    if not _flat(param, grad, m, v) or not _plain(lr, eps, weight_decay, grad_scale):
        options = {"lr": lr, "step": step, "beta1": beta1, "beta2": beta2, "eps": eps}
        reference.adam_update(param, grad, m, v, **options, weight_decay=weight_decay, grad_scale=grad_scale)
        return
    check_positive(step=step)
    m_scale, v_scale = 1 / (1 - beta1**step), 1 / (1 - beta2**step)
    numbers = lr, 1 - beta1, 1 - beta2, eps, weight_decay, grad_scale, m_scale, v_scale
    numbers = [param.dtype.type(x) for x in numbers]
    for_each_element("update", "adam", param.dtype, param.size, param, grad, m, v, *size_of(param.size), *numbers)


def _flat(*arrays):
    """Whether these are flat arrays of one length and full precision, C-contiguous."""
    if not suit(*arrays) or arrays[0].dtype.itemsize < 4:
        return False
    return all(x.shape == (arrays[0].size,) and x.flags.c_contiguous for x in arrays)


def _plain(*numbers):
    return all(isinstance(number, (float, int)) for number in numbers)
