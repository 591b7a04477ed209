"""Layer normalisation, a block of threads for each row."""

import cupy

from npformer import reference
from npformer.gpu.arrays import as_rows, contiguous, size_of, suit
from npformer.gpu.columns import sum_gain_and_bias
from npformer.gpu.launch import for_each_row, real
from npformer.reference.checks import check_positive


def layer_norm(x, gain, bias, eps=1e-5):
    """As ``reference.layer_norm``."""
    if not suit(x, gain, bias) or not gain.shape == bias.shape == x.shape[-1:]:
        return reference.layer_norm(x, gain, bias, eps)
    check_positive(eps=eps)
    rows, wide = as_rows(x), real(x.dtype)
    y = cupy.empty(x.shape, x.dtype)
    mean, rstd = (cupy.empty((*x.shape[:-1], 1), wide) for _ in range(2))
    arrays = rows, contiguous(gain), contiguous(bias), y, mean, rstd
    for_each_row("layer_norm", "layer_norm", x.dtype, len(rows), *arrays, *size_of(x.shape[-1]), wide.type(eps))
    return y, mean, rstd


def layer_norm_backward(dy, x, gain, mean, rstd):
    """As ``reference.layer_norm_backward``."""
    saved = suit(mean, rstd) and mean.shape == rstd.shape == (*x.shape[:-1], 1) and mean.dtype == real(x.dtype)
    if not (suit(dy, x, gain) and saved and dy.shape == x.shape and gain.shape == x.shape[-1:]):
        return reference.layer_norm_backward(dy, x, gain, mean, rstd)
    dx = cupy.empty(x.shape, x.dtype)
    dy, x, mean, rstd = as_rows(dy), as_rows(x), contiguous(mean), contiguous(rstd)
    arrays = dy, x, contiguous(gain), mean, rstd, dx
    for_each_row("layer_norm", "layer_norm_backward", x.dtype, len(x), *arrays, *size_of(x.shape[-1]))
    return dx, *sum_gain_and_bias(dy, x, mean, rstd)
