"""The cross-entropy loss.

Each target is an id from 0 to V - 1, and has a row of V logits. The loss is one number, a mean over
the targets; its gradient by the logits is returned with it, so there is no backward pass of its
own.
"""

import numpy as np

from npformer.arrays import Array
from npformer.checks import warn
from npformer.operations.formula import operation
from npformer.reference.math.linear import linear
from npformer.reference.math.softmax import log_softmax


@operation("logits: ... V>0, targets: ... ids<V -> loss: wide, dlogits: ... V")
def cross_entropy(
    logits: Array,
    targets: Array,
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    n_tokens: int | None = None,
    loss_scale: float = 1.0,
) -> tuple[Array, Array]:
    """Mean of -Σ_v q_v log softmax(logits)_v over the counted tokens, and its gradient.

    q is 1 at the target and 0 elsewhere. With label smoothing ε (Szegedy et al. 2016) it is
    1 - ε + ε/V at the target and ε/V elsewhere. The gradient costs almost nothing extra, so it is
    returned too. With n the number of counted tokens, it is

        dlogits = (softmax(logits) - q) / n

    Parameters
    ----------
    ignore_id
        Targets with this id are not counted; their logits may be NaN, and the gradient of these
        logits is 0.
    label_smoothing
        ε, 0 <= ε <= 1.
    n_tokens
        The divisor n of the mean: by default the number of counted tokens. If these tokens are one
        part of a larger batch, pass the number of counted tokens in the whole batch.
    loss_scale
        Multiplies the gradient, but not the loss, so that the gradient does not underflow in half
        precision.

    Returns
    -------
    loss
        float32 if the logits have half precision. 0 if no token is counted, with a warning unless
        n_tokens is given.

    >>> loss, dlogits = cross_entropy(np.log([[0.25, 0.75]]), np.array([1]))
    >>> print(loss.round(4), dlogits)
    0.2877 [[ 0.25 -0.25]]
    """
    counted = is_counted(targets, ignore_id=ignore_id)
    n = n_tokens
    if n is None:
        n = mean_divisor(counted.sum(), "cross_entropy: no target is counted, the loss is 0")
    share = 1 / n  # the weight of each counted token in the mean

    V = logits.shape[-1]
    target = np.where(counted, targets, 0)[..., None]  # any id in place of one that does not count
    log_p = log_softmax(logits)
    log_p_of_target = np.take_along_axis(log_p, target, axis=-1)[..., 0]
    surprise = -(1 - label_smoothing) * log_p_of_target  # -Σ q log p
    if label_smoothing:
        surprise = surprise - label_smoothing * log_p.mean(axis=-1)
    loss = np.where(counted, surprise, 0).sum() * share

    p = np.exp(log_p)
    is_target = target == np.arange(V, like=target)
    p_minus_q = np.where(is_target, p - (1 - label_smoothing), p) - label_smoothing / V
    dlogits = np.where(counted[..., None], p_minus_q * (share * loss_scale), 0)
    return loss, dlogits


def is_counted(targets, *, ignore_id):
    """Boolean mask of the targets that count: all of them, or those that are not ``ignore_id``."""
    if ignore_id is None:
        return np.ones_like(targets, dtype=bool)
    return targets != ignore_id


def mean_divisor(n_counted, warning):
    """The divisor of a mean: the number of entries that count.

    If there are none, it is 1, which avoids a division by 0, and the warning is issued.
    """
    n = int(n_counted)
    if n == 0:
        warn(warning)
        return 1
    return n


@operation(
    "x: ... D, weight: D V>0, bias: V, targets: ... ids<V -> loss: wide, dlogits: ... V",
    flops="2*N*D*V",
)
def linear_cross_entropy(
    x: Array,
    weight: Array,
    bias: Array | None,
    targets: Array,
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    n_tokens: int | None = None,
    loss_scale: float = 1.0,
) -> tuple[Array, Array]:
    """The cross-entropy of the logits x W + b, the last operation of a model.

    As one operation, it lets a kernel overwrite the logits with their gradient. The options are
    those of ``cross_entropy``.

    Returns
    -------
    dlogits
        Pass it to ``linear_backward(dlogits, x, weight, bias)``.

    >>> x, weight, bias = np.ones((1, 1)), np.zeros((1, 4)), np.zeros(4)
    >>> loss, dlogits = linear_cross_entropy(x, weight, bias, targets=np.array([2]))
    >>> print(loss.round(4), dlogits)
    1.3863 [[ 0.25  0.25 -0.75  0.25]]
    """
    logits = linear(x, weight, bias)
    return cross_entropy(
        logits,
        targets,
        ignore_id=ignore_id,
        label_smoothing=label_smoothing,
        n_tokens=n_tokens,
        loss_scale=loss_scale,
    )
