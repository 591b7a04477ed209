"""What an optimizer does to the parameters, in one pass over the flat arrays, by all threads."""

import math

import numpy as np

from npformer import reference
from npformer.cpu.arrays import suit
from npformer.cpu.jit import kernel
from npformer.cpu.scalar import like
from npformer.reference.checks import check_positive
from npformer.threads import in_parallel

CHUNK = 2**20  # numbers a thread takes at a time


def global_norm(grad):
    """As ``reference.global_norm``."""
    if not suit(grad) or grad.dtype != np.float32 or grad.size == 0:  # squares of float64 may overflow
        return reference.global_norm(grad)
    grad = np.ascontiguousarray(grad).reshape(-1)
    return math.sqrt(math.fsum(in_parallel(lambda part: _sum_of_squares(grad[part]), _chunks(grad.size))))


def sgd_update(param, grad, velocity, *, lr, momentum=0.0, nesterov=False, grad_scale=1.0):
    """As ``reference.sgd_update``."""
    options = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "grad_scale": grad_scale}
    arrays = (param, grad) if velocity is None else (param, grad, velocity)
    if not _flat(*arrays) or not _plain(lr, momentum, grad_scale) or (velocity is None and (momentum or nesterov)):
        reference.sgd_update(param, grad, velocity, **options)
        return
    lr, momentum, grad_scale = (param.dtype.type(x) for x in (lr, momentum, grad_scale))

    def work(part):
        if velocity is None:
            _descend(param[part], grad[part], lr, grad_scale)
        else:
            _descend_with_momentum(param[part], grad[part], velocity[part], lr, momentum, grad_scale, nesterov)

    in_parallel(work, _chunks(param.size))


def adam_update(param, grad, m, v, *, lr, step, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, grad_scale=1.0):
    """As ``reference.adam_update``."""
    if not _flat(param, grad, m, v) or not _plain(lr, eps, weight_decay, grad_scale) or max(beta1, beta2) >= 1:
        options = {"lr": lr, "step": step, "beta1": beta1, "beta2": beta2, "eps": eps}
        reference.adam_update(param, grad, m, v, **options, weight_decay=weight_decay, grad_scale=grad_scale)
        return
    check_positive(step=step)
    m_scale, v_scale = 1 / (1 - beta1**step), 1 / (1 - beta2**step)
    numbers = (lr, 1 - beta1, 1 - beta2, eps, weight_decay, grad_scale, m_scale, v_scale)
    numbers = tuple(param.dtype.type(x) for x in numbers)
    in_parallel(lambda part: _adam(param[part], grad[part], m[part], v[part], *numbers), _chunks(param.size))


def _flat(*arrays):
    """Whether these are flat arrays of one length that can be written."""
    if not suit(*arrays):
        return False
    return all(x.shape == (arrays[0].size,) and x.flags.c_contiguous and x.flags.writeable for x in arrays)


def _plain(*numbers):
    return all(isinstance(number, (float, int)) for number in numbers)


def _chunks(size):
    return [slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK)]


@kernel
def _sum_of_squares(x):
    total = 0.0
    for i in range(x.size):
        total += np.float64(x[i]) * np.float64(x[i])
    return total


@kernel
def _descend(param, grad, lr, grad_scale):
    for i in range(param.size):
        param[i] -= lr * (grad[i] * grad_scale)


@kernel
def _descend_with_momentum(param, grad, velocity, lr, momentum, grad_scale, nesterov):
    ahead = momentum if nesterov else like(lr, 1)
    own = grad_scale if nesterov else like(lr, 0)
    for i in range(param.size):
        velocity[i] = velocity[i] * momentum + grad[i] * grad_scale
        param[i] -= lr * (grad[i] * own + velocity[i] * ahead)


@kernel
def _adam(param, grad, m, v, lr, one_minus_beta1, one_minus_beta2, eps, weight_decay, grad_scale, m_scale, v_scale):
    for i in range(param.size):
        g = grad[i] * grad_scale
        m[i] += one_minus_beta1 * (g - m[i])
        v[i] += one_minus_beta2 * (g * g - v[i])
        param[i] -= lr * (m[i] * m_scale / (np.sqrt(v[i] * v_scale) + eps) + weight_decay * param[i])
