"""Convolution: ``reference.conv1d`` and its backward pass, each tap as a matrix product of BLAS.

The products are added to the result in place, where the reference adds arrays.
``npformer/kernels/shared.py`` has the loop over the taps, which the GPU shares.
"""

import numpy as np

from npformer.cpu.backend import kernel_of
from npformer.cpu.blas import BLAS, multiply
from npformer.cpu.jit import kernel
from npformer.cpu.sums import add_rows
from npformer.kernels.shared import make_convolution_kernels
from npformer.runtime.memory import empty


def _sum_over_rows(x):
    total = np.empty(x.shape[1], x.dtype)
    add_rows(x, total)
    return total


@kernel
def _multiply(blas, a, b, out, add):
    multiply(blas, a, b, out, add)


def _product(a, b, out, add):
    _multiply(BLAS[a.dtype], a, b, out, add)


make_convolution_kernels(kernel_of, empty, _product, _sum_over_rows)
