"""The parameter updates of the optimizers, in one pass over the flat arrays, by all threads."""

import math

import numpy as np

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import kernel
from npformer.reference.math.update import BLOCK, norm_of
from npformer.runtime.threads import in_parallel

CHUNK = 2**8 * BLOCK  # numbers per part that a thread takes: half a millisecond of Adam


@kernel_of(reference.norms_of_blocks, dtypes="float32")  # squares of float64 may overflow
def norms_of_blocks(grad):
    norms = np.empty(-(-grad.size // BLOCK))
    _in_chunks(lambda part: _norms(grad[part], norms[part.start // BLOCK :]), grad.size)
    return norms


@kernel_of(reference.global_norm, dtypes="float32")
def global_norm(grad):
    return norm_of(norms_of_blocks(grad.reshape(-1)))


@kernel_of(reference.sgd_update)
def sgd_update(param, grad, velocity, lr, momentum, nesterov, grad_scale):
    if math.isnan(grad_scale):
        return
    lr, momentum, grad_scale = (param.dtype.type(x) for x in (lr, momentum, grad_scale))

    def work(part):
        if velocity is None:
            _descend(param[part], grad[part], lr, grad_scale)
        else:
            _descend_with_momentum(param[part], grad[part], velocity[part], lr, momentum, grad_scale, nesterov)

    _in_chunks(work, param.size)


@kernel_of(reference.adam_update)
def adam_update(param, grad, m, v, lr, step, beta1, beta2, eps, weight_decay, grad_scale):
    if math.isnan(grad_scale):
        return
    m_scale, v_scale = 1 / (1 - beta1**step), 1 / (1 - beta2**step)
    numbers = (lr, 1 - beta1, 1 - beta2, eps, weight_decay, grad_scale, m_scale, v_scale)
    numbers = tuple(param.dtype.type(x) for x in numbers)
    _in_chunks(lambda part: _adam(param[part], grad[part], m[part], v[part], *numbers), param.size)


@kernel_of(reference.lion_update)
def lion_update(param, grad, m, lr, beta1, beta2, weight_decay, grad_scale):
    if math.isnan(grad_scale):
        return
    numbers = tuple(param.dtype.type(x) for x in (lr, 1 - beta1, 1 - beta2, weight_decay, grad_scale))
    _in_chunks(lambda part: _lion(param[part], grad[part], m[part], *numbers), param.size)


def _in_chunks(work, size):
    """Let threads do the work for parts of so many numbers; a few numbers are not worth asking them."""
    if size <= CHUNK:
        work(slice(0, size))
    else:
        in_parallel(work, [slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK)])


@kernel
def _norms(x, norms):
    for start in range(0, x.size, BLOCK):
        total = 0.0
        for k in range(min(BLOCK, x.size - start)):
            number = np.float64(x[np.uint64(start + k)])  # unsigned: see sums.py
            total += number * number
        norms[start // BLOCK] = np.sqrt(total)


@kernel
def _descend(param, grad, lr, grad_scale):
    for i in range(param.size):
        param[i] -= lr * (grad[i] * grad_scale)


@kernel
def _descend_with_momentum(param, grad, velocity, lr, momentum, grad_scale, nesterov):
    for i in range(param.size):
        g = grad[i] * grad_scale
        velocity[i] = velocity[i] * momentum + g
        param[i] -= lr * (g + momentum * velocity[i] if nesterov else velocity[i])


@kernel
def _adam(param, grad, m, v, lr, one_minus_beta1, one_minus_beta2, eps, weight_decay, grad_scale, m_scale, v_scale):
    for i in range(param.size):
        g = grad[i] * grad_scale
        m[i] += one_minus_beta1 * (g - m[i])
        v[i] += one_minus_beta2 * (g * g - v[i])
        param[i] -= lr * (m[i] * m_scale / (np.sqrt(v[i] * v_scale) + eps) + weight_decay * param[i])


@kernel
def _lion(param, grad, m, lr, one_minus_beta1, one_minus_beta2, weight_decay, grad_scale):
    for i in range(param.size):
        g = grad[i] * grad_scale
        direction = np.sign(m[i] + one_minus_beta1 * (g - m[i]))
        param[i] -= lr * (direction + weight_decay * param[i])
        m[i] += one_minus_beta2 * (g - m[i])
