"""What an optimizer does to the parameters, in one pass over the flat arrays.

Learning rate, step and scale of the gradient may be arrays (): what is recorded reads them when it is replayed.
"""

import math
from numbers import Real

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
    grad = contiguous(grad)
    n_blocks = min(BLOCKS, -(-grad.size // THREADS))
    sums, total = cupy.empty(n_blocks, np.float64), cupy.empty((), np.float64)
    launch("norm", "sums_of_squares", grad.dtype, (n_blocks,), (THREADS,), grad, sums, *size_of(grad.size))
    launch("norm", "add_sums", grad.dtype, (1,), (THREADS,), sums, total, *size_of(n_blocks))
    return total


def sgd_update(param, grad, velocity, *, lr, momentum=0.0, nesterov=False, grad_scale=1.0):
    """As ``reference.sgd_update``."""
    arrays = (param, grad) if velocity is None else (param, grad, velocity)
    unusual = not _flat(*arrays) or not (_are_real(momentum) and _are_real_or_there(lr, grad_scale))
    if unusual or (velocity is None and (momentum or nesterov)):
        options = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "grad_scale": grad_scale}
        reference.sgd_update(param, grad, velocity, **options)
        return
    there = _on_gpu(lr, grad_scale)
    options = param.dtype.type(momentum), np.int32(nesterov), *there
    for_each_element("update", "sgd", param.dtype, param.size, param, grad, velocity, *size_of(param.size), *options)


def adam_update(param, grad, m, v, *, lr, step, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, grad_scale=1.0):
    """As ``reference.adam_update``."""
    if not (_flat(param, grad, m, v) and _are_real(eps, weight_decay) and _are_real_or_there(lr, step, grad_scale)):
        options = {"lr": lr, "step": step, "beta1": beta1, "beta2": beta2, "eps": eps}
        reference.adam_update(param, grad, m, v, **options, weight_decay=weight_decay, grad_scale=grad_scale)
        return
    if not isinstance(step, cupy.ndarray):
        check_positive(step=step)
    numbers = map(param.dtype.type, (1 - beta1, 1 - beta2, eps, weight_decay))
    arrays, there = (param, grad, m, v), _on_gpu(lr, 1 / (1 - beta1**step), 1 / (1 - beta2**step), grad_scale)
    for_each_element("update", "adam", param.dtype, param.size, *arrays, *size_of(param.size), *numbers, *there)


def _flat(*arrays):
    """Whether these are flat arrays of one length and full precision, C-contiguous."""
    if not suit(*arrays) or arrays[0].dtype.itemsize < 4:
        return False
    return all(x.shape == (arrays[0].size,) and x.flags.c_contiguous for x in arrays)


def _are_real(*numbers):
    return all(isinstance(number, Real) for number in numbers)


def _are_real_or_there(*numbers):
    """Whether these are numbers here, or all on the GPU."""
    return _are_real(*numbers) or all(isinstance(x, cupy.ndarray) and x.shape == () for x in numbers)


def _on_gpu(*numbers):
    """Each as a float64 () there; one that is there already is not copied."""
    return [cupy.asarray(number, np.float64) for number in numbers]
