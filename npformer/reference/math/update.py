"""The updates of the optimizers: how they change parameters, given their gradient.

Parameter, gradient and moments are flat, with n numbers each. They are large, so parameters and
moments are updated in place. No other operation writes to an argument.
"""

import math

import numpy as np

from npformer.arrays import Array
from npformer.errors import UserError
from npformer.operations.formula import operation

NORM_BLOCK = 2**12  # numbers whose squares are added first


@operation("grad: ...")
def global_norm(grad: Array) -> float:
    """√Σ g² over one flat gradient; NaN or inf if any entry is.

    It is the norm of ``norms_of_blocks``, so that on a CPU it has the same bits however many
    threads or processes compute them. On a GPU the result is a 0-d array on the device, so that the
    host does not wait for it.

    >>> global_norm(np.array([3.0, 4.0]))
    5.0
    """
    norms = norms_of_blocks(grad.reshape(-1))
    return norm_of(norms)


@operation("grad: n")
def norms_of_blocks(grad: Array) -> Array:
    """√Σ g² of the first ``NORM_BLOCK`` numbers, of the next ones, and so on, in float64.

    >>> norms_of_blocks(np.full(2**12 + 1, 3.0))  # a block has 2**12 numbers
    array([192.,   3.])
    """
    starts = range(0, grad.size, NORM_BLOCK)
    return np.array([_norm(grad[start : start + NORM_BLOCK]) for start in starts])


def norm_of(norms):
    """The norm of an array, given those of its blocks, in any order."""
    largest = float(norms.max(initial=0))
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(math.fsum((norms / largest) ** 2))  # which rounds once, at the end


def _norm(x):
    largest = np.float64(np.abs(x).max())
    if largest == 0 or not np.isfinite(largest):
        return largest
    scaled = x / largest  # so that no square overflows or underflows
    # Not a dot product, which would be divided among the threads of BLAS.
    return largest * np.sqrt((scaled * scaled).sum())


def _check_sgd(*, velocity, momentum, nesterov, **_):
    if velocity is None and (momentum or nesterov):
        options = f"momentum={momentum}, nesterov={nesterov}"
        raise UserError(f"{options} need a velocity array, got velocity=None")


@operation("param: n written, grad: n, velocity: n written", check=_check_sgd)
def sgd_update(
    param: Array,
    grad: Array,
    velocity: Array | None,
    *,
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    grad_scale: float = 1.0,
) -> None:
    """velocity = momentum · velocity + g; param -= lr · velocity; with Nesterov,
    lr · (g + momentum · velocity).

    Parameters
    ----------
    param, grad, velocity
        ``param`` and ``velocity`` are written; ``velocity`` may be None without momentum.
    lr, momentum, nesterov
        The momentum of Sutskever et al. 2013, but with lr outside of the velocity, as in PyTorch.
    grad_scale
        Multiplies the gradient first, for gradient clipping. If it is NaN, the update is skipped.

    >>> param = np.array([1.0])
    >>> sgd_update(param, np.array([2.0]), None, lr=0.25)
    >>> param
    array([0.5])
    """
    if np.isnan(grad_scale):
        return
    step = grad * grad_scale
    if velocity is not None:
        velocity *= momentum
        velocity += step
        step = step + momentum * velocity if nesterov else velocity
    param -= lr * step


@operation("param: n written, grad: n, m: n written, v: n written")
def adam_update(
    param: Array,
    grad: Array,
    m: Array,
    v: Array,
    *,
    lr: float,
    step: int,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    grad_scale: float = 1.0,
) -> None:
    """One step of Adam (Kingma and Ba 2015), with decoupled weight decay (Loshchilov and Hutter
    2019).

    m and v are running means of g and g². They start at 0, and m̂ and v̂ are corrected for this
    bias: param -= lr · (m̂ / (√v̂ + eps) + weight_decay · param).

    Parameters
    ----------
    param, grad, m, v
        ``param``, ``m`` and ``v`` are written.
    step
        1 for the first step.
    grad_scale
        Multiplies the gradient first, for gradient clipping. If it is NaN, the update is skipped.

    >>> param, m, v = np.array([1.0]), np.zeros(1), np.zeros(1)
    >>> adam_update(param, np.array([123.0]), m, v, lr=0.25, step=1)  # the first step has size lr
    >>> param
    array([0.75])
    """
    if np.isnan(grad_scale):
        return
    g = grad * grad_scale
    m += (1 - beta1) * (g - m)
    v += (1 - beta2) * (g * g - v)
    m_hat = m / (1 - beta1**step)
    v_hat = v / (1 - beta2**step)
    param -= lr * (m_hat / (np.sqrt(v_hat) + eps) + weight_decay * param)


@operation("param: n written, grad: n, m: n written")
def lion_update(
    param: Array,
    grad: Array,
    m: Array,
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
    grad_scale: float = 1.0,
) -> None:
    """One step of Lion (Chen et al. 2023): param -=
    lr · (sign(beta1 · m + (1 - beta1) · g) + weight_decay · param).

    m is a running mean of g, which starts at 0. Each number moves by lr, whatever the size of its
    gradient.

    Parameters
    ----------
    param, grad, m
        ``param`` and ``m`` are written.
    grad_scale
        Multiplies the gradient first, for gradient clipping. If it is NaN, the update is skipped.

    >>> param, m = np.array([1.0, 1.0]), np.zeros(2)
    >>> lion_update(param, np.array([123.0, -0.001]), m, lr=0.25)
    >>> param
    array([0.75, 1.25])
    """
    if np.isnan(grad_scale):
        return
    g = grad * grad_scale
    direction = np.sign(m + (1 - beta1) * (g - m))
    param -= lr * (direction + weight_decay * param)
    m += (1 - beta2) * (g - m)
