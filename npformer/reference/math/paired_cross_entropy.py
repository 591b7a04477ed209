"""A loss of two predictions that penalises their difference: R-Drop (Liang et al. 2021).

The first axis of the logits has the two predictions; each target has a row of V logits in both.
Otherwise all is as for ``cross_entropy``: one number, and its gradient by the logits.
"""

import numpy as np

from npformer.arrays import Array
from npformer.operations.formula import operation
from npformer.reference.math.cross_entropy import cross_entropy, is_counted, mean_divisor
from npformer.reference.math.linear import linear
from npformer.reference.math.softmax import log_softmax


@operation("logits: 2 ... V>0, targets: ... ids<V -> loss: wide, dlogits: 2 ... V")
def paired_cross_entropy(
    logits: Array,
    targets: Array,
    consistency: float,
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    n_tokens: int | None = None,
    loss_scale: float = 1.0,
) -> tuple[Array, Array]:
    """The cross-entropy of two predictions of each target, plus a penalty on their difference.

    Dropout makes two predictions p and p' of the same model differ. The loss over the n counted
    tokens is

        Σ [ce(p) + ce(p') + α/2 (KL(p‖p') + KL(p'‖p))] / 2n

    It is half of the loss of the paper, and a mean, so that with α = 0 it equals the
    ``cross_entropy`` of all predictions.

    Parameters
    ----------
    logits
        The logits of both predictions; they must be finite.
    consistency
        α >= 0.
    ignore_id, label_smoothing, n_tokens, loss_scale
        As for ``cross_entropy``.

    >>> logits, target = np.log([[0.5, 0.5], [0.25, 0.75]]), np.array(1)
    >>> alike, _ = paired_cross_entropy(logits, target, 0.0)
    >>> apart, _ = paired_cross_entropy(logits, target, 2.0)
    >>> print(alike.round(4), (apart - alike).round(4))  # 0.5 (KL + KL) = 0.5 · 0.25 log 3
    0.4904 0.1373
    """
    counted = is_counted(targets, ignore_id=ignore_id)
    n = n_tokens
    if n is None:
        n = mean_divisor(counted.sum(), "paired_cross_entropy: no target is counted, the loss is 0")

    # Σ [ce(p) + ce(p')] / 2n
    loss, dlogits = cross_entropy(
        logits,
        np.stack([targets, targets]),
        ignore_id=ignore_id,
        label_smoothing=label_smoothing,
        n_tokens=2 * n,
        loss_scale=loss_scale,
    )

    # Σ α/2 [KL(p‖p') + KL(p'‖p)] / 2n
    share = consistency / (4 * n)
    log_p = log_softmax(logits)
    p = np.exp(log_p)
    apart = log_p - log_p[::-1]  # log p - log p', and log p' - log p
    divergence = (p * apart).sum(axis=-1)  # KL(p‖p') and KL(p'‖p)
    loss = loss + np.where(counted, divergence, 0).sum() * share

    # Its gradient; each prediction has a part in both divergences.
    ddivergence = p * (apart - divergence[..., None]) + p - p[::-1]
    dlogits = dlogits + np.where(counted[..., None], ddivergence * (share * loss_scale), 0)
    return loss, dlogits


@operation(
    "x: 2 ... D, weight: D V>0, bias: V, targets: ... ids<V -> loss: wide, dlogits: 2 ... V",
    flops="4*N*D*V",
)
def linear_paired_cross_entropy(
    x: Array,
    weight: Array,
    bias: Array | None,
    targets: Array,
    consistency: float,
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    n_tokens: int | None = None,
    loss_scale: float = 1.0,
) -> tuple[Array, Array]:
    """The ``paired_cross_entropy`` of the logits x W + b, with the same options.

    >>> x, weight, bias = np.ones((2, 3, 1)), np.ones((1, 4)), np.zeros(4)
    >>> loss, _ = linear_paired_cross_entropy(x, weight, bias, np.array([2, 0, 1]), consistency=1.0)
    >>> print(loss.round(4))
    1.3863
    """
    logits = linear(x, weight, bias)
    return paired_cross_entropy(
        logits,
        targets,
        consistency,
        ignore_id=ignore_id,
        label_smoothing=label_smoothing,
        n_tokens=n_tokens,
        loss_scale=loss_scale,
    )
