"""Layer normalisation and root-mean-square normalisation, a block of threads for each row."""

import cupy

from npformer import reference
from npformer.arrays import as_rows
from npformer.gpu.backend import kernel_of
from npformer.gpu.columns import sum_gain_and_bias
from npformer.gpu.launch import for_each_row, real


@kernel_of(reference.layer_norm)
def layer_norm(x, gain, bias, eps):
    n, wide, y = x.shape[-1], real(x.dtype), cupy.empty(x.shape, x.dtype)
    mean, rstd = (cupy.empty((*x.shape[:-1], 1), wide) for _ in range(2))
    arrays = x, gain, bias, y, mean, rstd
    for_each_row("layer_norm", "layer_norm", x.dtype, mean.size, *arrays, n, wide.type(eps))
    return y, mean, rstd


@kernel_of(reference.layer_norm_backward)
def layer_norm_backward(dy, x, gain, mean, rstd):
    dx = cupy.empty(x.shape, x.dtype)
    arrays = dy, x, gain, mean, rstd, dx
    for_each_row("layer_norm", "layer_norm_backward", x.dtype, mean.size, *arrays, x.shape[-1])
    return dx, *sum_gain_and_bias(as_rows(dy), x, mean, rstd)


@kernel_of(reference.rms_norm)
def rms_norm(x, gain, eps):
    n, wide, y = x.shape[-1], real(x.dtype), cupy.empty(x.shape, x.dtype)
    rstd = cupy.empty((*x.shape[:-1], 1), wide)
    arrays = x, gain, None, y, None, rstd
    for_each_row("layer_norm", "layer_norm", x.dtype, rstd.size, *arrays, n, wide.type(eps))
    return y, rstd


@kernel_of(reference.rms_norm_backward)
def rms_norm_backward(dy, x, gain, rstd):
    dx = cupy.empty(x.shape, x.dtype)
    arrays = dy, x, gain, None, rstd, dx
    for_each_row("layer_norm", "layer_norm_backward", x.dtype, rstd.size, *arrays, x.shape[-1])
    dgain, _ = sum_gain_and_bias(as_rows(dy), x, None, rstd)
    return dx, dgain
