"""Convolution: ``reference.conv1d`` and its backward pass, each tap as a matrix product of cuBLAS.

``npformer/kernels/shared.py`` has the loop over the taps, which the CPU shares.
"""

import cupy

from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.columns import sum_columns
from npformer.kernels.shared import make_convolution_kernels

make_convolution_kernels(kernel_of, cupy.empty, multiply, sum_columns, as_it_lies="weight")
