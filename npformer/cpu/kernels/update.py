"""The parameter updates of the optimizers: ``reference.sgd_update``, ``adam_update`` and
``lion_update``, and the norm of a gradient.

They are one pass over the flat arrays, which all threads share: the time is that of reading and
writing memory. The reference makes an array at each step of a formula.
"""

import math

import numpy as np

from npformer import reference
from npformer.cpu.backend import kernel_of
from npformer.cpu.jit import kernel
from npformer.reference.math.update import NORM_BLOCK, norm_of
from npformer.runtime.threads import in_parallel

CHUNK = 2**8 * NORM_BLOCK  # numbers per part that a thread takes: half a millisecond of Adam


@kernel_of(reference.norms_of_blocks, dtypes="float32")  # squares of float64 may overflow
def norms_of_blocks(grad):
    norms = np.empty(-(-grad.size // NORM_BLOCK))
    _in_chunks(lambda part: _norms(grad[part], norms[part.start // NORM_BLOCK :]), grad.size)
    return norms


@kernel_of(reference.global_norm, dtypes="float32")
def global_norm(grad):
    return norm_of(norms_of_blocks(grad.reshape(-1)))


@kernel_of(reference.sgd_update)
def sgd_update(param, grad, velocity, lr, momentum, nesterov, grad_scale):
    if velocity is None:
        _update(_descend, (param, grad), grad_scale, lr)
    else:
        arrays = param, grad, velocity
        _update(_descend_with_momentum, arrays, grad_scale, lr, momentum, nesterov)


@kernel_of(reference.adam_update)
def adam_update(param, grad, m, v, lr, step, beta1, beta2, eps, weight_decay, grad_scale):
    m_rate = 1 - beta1
    v_rate = 1 - beta2
    m_scale = 1 / (1 - beta1**step)
    v_scale = 1 / (1 - beta2**step)
    numbers = lr, m_rate, v_rate, eps, weight_decay, m_scale, v_scale
    _update(_adam, (param, grad, m, v), grad_scale, *numbers)


@kernel_of(reference.lion_update)
def lion_update(param, grad, m, lr, beta1, beta2, weight_decay, grad_scale):
    step_rate = 1 - beta1
    m_rate = 1 - beta2
    _update(_lion, (param, grad, m), grad_scale, lr, step_rate, m_rate, weight_decay)


def _update(kernel, arrays, grad_scale, *numbers):
    """Call a kernel with parts of the arrays, and with the numbers in their dtype as one tuple."""
    if math.isnan(grad_scale):
        return
    numbers = tuple(map(arrays[0].dtype.type, (grad_scale, *numbers)))
    _in_chunks(lambda part: kernel(*[x[part] for x in arrays], numbers), arrays[0].size)


def _in_chunks(work, size):
    """Let threads do the work for parts of so many numbers; a few numbers are not worth asking
    them.
    """
    if size <= CHUNK:
        work(slice(0, size))
    else:
        starts = range(0, size, CHUNK)
        in_parallel(work, [slice(start, min(start + CHUNK, size)) for start in starts])


@kernel
def _norms(x, norms):
    for start in range(0, x.size, NORM_BLOCK):
        total = 0.0
        for k in range(min(NORM_BLOCK, x.size - start)):
            number = np.float64(x[np.uint64(start + k)])  # unsigned: see sums.py
            total += number * number
        norms[start // NORM_BLOCK] = np.sqrt(total)


@kernel
def _descend(param, grad, numbers):
    grad_scale, lr = numbers
    for i in range(param.size):
        param[i] -= lr * (grad[i] * grad_scale)


@kernel
def _descend_with_momentum(param, grad, velocity, numbers):
    grad_scale, lr, momentum, nesterov = numbers  # the last is 1 or 0
    for i in range(param.size):
        g = grad[i] * grad_scale
        velocity[i] = velocity[i] * momentum + g
        param[i] -= lr * (g + momentum * velocity[i] if nesterov else velocity[i])


@kernel
def _adam(param, grad, m, v, numbers):
    grad_scale, lr, m_rate, v_rate, eps, weight_decay, m_scale, v_scale = numbers
    for i in range(param.size):
        g = grad[i] * grad_scale
        m[i] += m_rate * (g - m[i])
        v[i] += v_rate * (g * g - v[i])
        step = m[i] * m_scale / (np.sqrt(v[i] * v_scale) + eps)
        param[i] -= lr * (step + weight_decay * param[i])


@kernel
def _lion(param, grad, m, numbers):
    grad_scale, lr, step_rate, m_rate, weight_decay = numbers
    for i in range(param.size):
        g = grad[i] * grad_scale
        direction = np.sign(m[i] + step_rate * (g - m[i]))
        param[i] -= lr * (direction + weight_decay * param[i])
        m[i] += m_rate * (g - m[i])
