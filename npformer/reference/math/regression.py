"""The losses of predicted numbers: the squared error, and Huber's, which grows less.

Targets have the shape of the predictions, and the mask one that broadcasts to it. The loss is one
number; its gradient by the predictions is returned with it.
"""

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import operation
from npformer.reference.math.cross_entropy import mean_divisor


@operation("x: ..., targets: ... wide, keep_mask: ~ ... mask -> loss: wide, dx: ...")
def mse_loss(
    x: Array,
    targets: Array,
    keep_mask: Array | None = None,
    *,
    n_tokens: int | None = None,
    loss_scale: float = 1.0,
) -> tuple[Array, Array]:
    """Mean of r² over the counted entries, where r = x - targets, and its gradient dx = 2 r / n.

    Parameters
    ----------
    x
        The predicted numbers.
    targets
        Numbers of exactly the same shape. Their dtype does not decide that of the results.
    keep_mask
        True where an entry counts: of entries, or of rows with a last axis of size 1, as
        ``is_word[..., None]``. What does not count may be NaN, and its gradient is 0.
    n_tokens
        The divisor n of the mean: by default the number of counted entries. If these entries are
        one part of a larger batch, pass the number of counted entries in the whole batch.
    loss_scale
        Multiplies the gradient, but not the loss, so that the gradient does not underflow in half
        precision.

    Returns
    -------
    loss
        float32 if x has half precision. 0 if no entry is counted, with a warning unless n_tokens is
        given.

    >>> x, targets = np.array([[1.0, 3.0], [5.0, 7.0]]), np.array([[2.0, 0.0], [5.0, np.nan]])
    >>> loss, dx = mse_loss(x, targets, keep_mask=np.array([[True], [False]]))  # (1 + 9) / 2
    >>> loss.item(), dx.tolist()
    (5.0, [[-1.0, 3.0], [0.0, 0.0]])
    """
    r, share = errors_and_share("mse_loss", x, targets, keep_mask, n_tokens)
    loss = (r * r).sum() * share
    dx = r * (2 * share * loss_scale)
    return loss, dx


@operation("x: ..., targets: ... wide, keep_mask: ~ ... mask -> loss: wide, dx: ...")
def huber_loss(
    x: Array,
    targets: Array,
    keep_mask: Array | None = None,
    *,
    delta: float = 1.0,
    n_tokens: int | None = None,
    loss_scale: float = 1.0,
) -> tuple[Array, Array]:
    """Mean of r²/2 for r from -δ to δ, of δ (abs(r) - δ/2) beyond, r = x - targets; and its
    gradient (Huber 1964).

    The gradient is r / n, clipped to ±δ / n: an outlier counts no more than an error of δ. It is
    PyTorch's HuberLoss; for large δ it is half of ``mse_loss``.

    Parameters
    ----------
    x, targets, keep_mask, n_tokens, loss_scale
        As for ``mse_loss``.
    delta
        δ > 0, where the parabola becomes a line.

    Returns
    -------
    loss
        As for ``mse_loss``.

    >>> loss, dx = huber_loss(np.array([0.5, -4.0]), np.zeros(2))  # (0.125 + 3.5) / 2
    >>> loss.item(), dx.tolist()
    (1.8125, [0.25, -0.5])
    """
    r, share = errors_and_share("huber_loss", x, targets, keep_mask, n_tokens)
    clipped = np.clip(r, -delta, delta)  # complex numbers are compared by their real parts
    loss = (clipped * (r - clipped / 2)).sum() * share
    dx = clipped * (share * loss_scale)
    return loss, dx


def errors_and_share(loss, x, targets, keep_mask, n_tokens):
    """(x - targets, but 0 where an entry does not count; 1/n, the weight of each counted entry in
    the mean).
    """
    r = x - targets
    if keep_mask is not None:
        r = np.where(keep_mask, r, 0)
    n = n_tokens
    if n is None:
        n_counted = x.size if keep_mask is None else np.broadcast_to(keep_mask, x.shape).sum()
        n = mean_divisor(n_counted, f"{loss}: no entry is counted, the loss is 0")
    return r, 1 / n
