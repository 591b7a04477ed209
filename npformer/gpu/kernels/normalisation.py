"""Layer normalisation and normalisation by the root mean square: ``reference.layer_norm``,
``rms_norm`` and their backward passes, a block of threads for each row.

Both have the same kernels, which do not centre the rows if there is no array of their means.
"""

import cupy

from npformer import reference
from npformer.arrays import as_rows
from npformer.gpu.backend import kernel_of
from npformer.gpu.columns import sum_gain_and_bias
from npformer.gpu.launch import real, row_kernel


@kernel_of(reference.layer_norm)
def layer_norm(x, gain, bias, eps):
    mean = cupy.empty((*x.shape[:-1], 1), real(x.dtype))
    y, rstd = _normalised(x, gain, bias, mean, eps)
    return y, mean, rstd


@kernel_of(reference.layer_norm_backward)
def layer_norm_backward(dy, x, gain, mean, rstd):
    dx = _gradient_of_input(dy, x, gain, mean, rstd)
    dgain, dbias = sum_gain_and_bias(as_rows(dy), x, mean, rstd)
    return dx, dgain, dbias


@kernel_of(reference.rms_norm)
def rms_norm(x, gain, eps):
    return _normalised(x, gain, None, None, eps)


@kernel_of(reference.rms_norm_backward)
def rms_norm_backward(dy, x, gain, rstd):
    dx = _gradient_of_input(dy, x, gain, None, rstd)
    dgain, _ = sum_gain_and_bias(as_rows(dy), x, None, rstd)
    return dx, dgain


def _normalised(x, gain, bias, mean, eps):
    """(y, rstd); the means of the rows are written to ``mean``, unless it is None."""
    wide = real(x.dtype)
    y = cupy.empty(x.shape, x.dtype)
    rstd = cupy.empty((*x.shape[:-1], 1), wide)
    kernel = row_kernel("layer_norm", "layer_norm", x.dtype, rstd.size)
    # layer_norm(x, gain, bias, y, mean, rstd, n, eps)
    kernel(x, gain, bias, y, mean, rstd, x.shape[-1], wide.type(eps))
    return y, rstd


def _gradient_of_input(dy, x, gain, mean, rstd):
    dx = cupy.empty(x.shape, x.dtype)
    kernel = row_kernel("layer_norm", "layer_norm_backward", x.dtype, rstd.size)
    # layer_norm_backward(dy, x, gain, mean, rstd, dx, n)
    kernel(dy, x, gain, mean, rstd, dx, x.shape[-1])
    return dx
