"""One vector for each sequence, of those of its positions."""

import numpy as np

from npformer.arrays import kept, underflow_is_zero


@underflow_is_zero()
def pooled(x, keep_mask, pooling):
    """The mean, the first or the maximum of the positions that are kept: (B, T, D) -> (B, D), and a backward pass.

    ``keep_mask`` (B, T) is None if all positions are kept. "none" changes nothing. Rows of which nothing is kept get
    zeros.

    >>> x = np.array([[[1.0], [3.0], [np.nan]]])
    >>> y, backward = pooled(x, np.array([[True, True, False]]), "mean")
    >>> y, backward(np.array([[1.0]]))[..., 0]
    (array([[2.]]), array([[0.5, 0.5, 0. ]]))
    """
    if pooling == "none":
        return x, lambda dy: dy
    mask = np.ones_like(x[..., :1], dtype=bool) if keep_mask is None else keep_mask[..., None]
    if pooling == "first":
        chosen = (np.arange(x.shape[1], like=x)[:, None] == 0) & mask
    elif pooling == "max":
        least = np.where(mask, x.real, -np.inf)
        chosen = (np.arange(x.shape[1], like=x)[:, None] == least.argmax(axis=1)[:, None]) & mask
    else:
        chosen = mask
    share = 1 / np.maximum(mask.sum(axis=1), 1).astype(x.real.dtype) if pooling == "mean" else 1
    y = kept(chosen, x).sum(axis=1) * share

    @underflow_is_zero()
    def backward(dy):
        return kept(chosen, np.broadcast_to((dy * share)[:, None], x.shape))

    return y, backward
