"""The loss."""

import warnings

from npformer.reference.arrays import Array, library_of, namespace, narrow, quiet, widen
from npformer.reference.checks import check_ids, check_int
from npformer.reference.softmax import log_softmax


@quiet
def cross_entropy(
    logits: Array,
    targets: Array,
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    n_tokens: int | None = None,
) -> tuple[Array, Array]:
    """Mean of -Σ_v q_v log softmax(logits)_v over the counted tokens, and its gradient.

    q is 1 at the target, or with label smoothing ε (Szegedy et al. 2016): 1 - ε there, plus ε/V
    everywhere. The gradient costs nothing more, so it comes along: dlogits = (softmax(logits) - q) / n.

    Parameters
    ----------
    logits : (..., V)
    targets : (...) int
    ignore_id : int, optional
        Targets with this id are not counted; their logits may be NaN and get gradient 0.
    label_smoothing : float
        ε, 0 <= ε <= 1.
    n_tokens : int, optional
        What the sum is divided by: the counted tokens if not given, more if these are a part of a larger batch.

    Returns
    -------
    loss : scalar
        float32 where logits have half precision. If no token is counted: 0, with a warning unless n_tokens is given.
    dlogits : (..., V)

    Examples
    --------
    >>> import numpy as np
    >>> loss, dlogits = cross_entropy(np.log([[0.25, 0.75]]), np.array([1]))
    >>> print(loss.round(4), dlogits)
    0.2877 [[ 0.25 -0.25]]
    """
    xp = namespace(logits=logits)
    library_of(targets, "targets")
    if targets.shape != logits.shape[:-1]:
        raise ValueError(f"targets {targets.shape}, logits {logits.shape}: expected (...) and (..., V)")
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"logits have shape {logits.shape}, expected (..., V) with V >= 1")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing={label_smoothing}, expected 0 <= label_smoothing <= 1")
    label_smoothing = float(label_smoothing)
    V = logits.shape[-1]
    check_ids(targets, V, "targets", ignore_id)
    if n_tokens is not None:
        check_int("n_tokens", n_tokens, at_least=1)

    counted = xp.ones(targets.shape, bool) if ignore_id is None else targets != ignore_id
    n = int(counted.sum()) if n_tokens is None else n_tokens
    if n == 0:
        warnings.warn("cross_entropy: no target is counted, the loss is 0", stacklevel=3)
    share = 1 / n if n else 0.0  # of each counted token in the mean

    log_p = log_softmax(widen(logits))
    target = xp.where(counted, targets, 0)[..., None]
    surprise = -(1 - label_smoothing) * xp.take_along_axis(log_p, target, axis=-1)[..., 0]
    if label_smoothing:
        surprise = surprise - label_smoothing * log_p.mean(axis=-1)
    loss = xp.where(counted, surprise, 0).sum() * share

    p = xp.exp(log_p)
    p_minus_q = xp.where(target == xp.arange(V), p - (1 - label_smoothing), p) - label_smoothing / V
    dlogits = xp.where(counted[..., None], p_minus_q * share, 0)
    return loss, narrow(dlogits, logits)
