"""A loss that asks two predictions to agree (Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks")."""

from npformer.reference.arrays import Array, library_of, namespace, narrow, quiet, widen
from npformer.reference.checks import check_ids, check_int, check_not_negative
from npformer.reference.cross_entropy import cross_entropy
from npformer.reference.softmax import log_softmax


@quiet
def paired_cross_entropy(
    logits: Array,
    targets: Array,
    consistency: float,
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    n_tokens: int | None = None,
) -> tuple[Array, Array]:
    """The cross-entropy of two predictions of each target, and how far these are apart.

    Dropout makes two predictions p and p' of one model differ. Over the n counted tokens this is

        Σ [ce(p) + ce(p') + α/2 (KL(p‖p') + KL(p'‖p))] / 2n

    half of the paper's equation 4, and a mean, so that without α it is ``cross_entropy`` of all predictions.

    Parameters
    ----------
    logits : (2, ..., V)
        Of both predictions; finite.
    targets : (...) int
    consistency : float
        α >= 0.
    ignore_id, label_smoothing
        As for ``cross_entropy``.
    n_tokens : int, optional
        What stands for n, if these are a part of a larger batch.

    Returns
    -------
    loss : scalar
    dlogits : (2, ..., V)

    Examples
    --------
    >>> import numpy as np
    >>> logits, target = np.log([[0.5, 0.5], [0.25, 0.75]]), np.array(1)
    >>> alike, _ = paired_cross_entropy(logits, target, 0.0)
    >>> apart, _ = paired_cross_entropy(logits, target, 2.0)
    >>> print(alike.round(4), (apart - alike).round(4))  # 0.5 (KL + KL) = 0.5 · 0.25 log 3
    0.4904 0.1373
    """
    xp = namespace(logits=logits)
    library_of(targets, "targets")
    check_not_negative(consistency=consistency)
    if logits.ndim < 2 or logits.shape[:-1] != (2, *targets.shape):
        raise ValueError(f"targets {targets.shape}, logits {logits.shape}: expected (...) and (2, ..., V)")
    check_ids(targets, logits.shape[-1], "targets", ignore_id)
    if n_tokens is not None:
        check_int("n_tokens", n_tokens, at_least=1)
    wide = widen(logits)
    options = {"ignore_id": ignore_id, "label_smoothing": label_smoothing}
    loss, dlogits = cross_entropy(
        wide, xp.stack([targets, targets]), **options, n_tokens=None if n_tokens is None else 2 * n_tokens
    )
    counted = xp.ones(targets.shape, bool) if ignore_id is None else targets != ignore_id
    n = int(counted.sum()) if n_tokens is None else n_tokens
    share = consistency / (4 * n) if n else 0.0

    log_p = log_softmax(wide)
    p, apart = xp.exp(log_p), log_p - log_p[::-1]
    divergence = (p * apart).sum(axis=-1)  # KL(p‖p') and KL(p'‖p)
    dapart = p * (apart - divergence[..., None]) + p - p[::-1]
    loss = loss + xp.where(counted, divergence, 0).sum() * share
    return loss, narrow(dlogits + xp.where(counted[..., None], dapart * share, 0), logits)
