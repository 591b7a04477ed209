"""Convolution by the matrix products of cuBLAS."""

import cupy

from npformer.gpu.backend import kernel_of
from npformer.gpu.blas import multiply
from npformer.gpu.columns import sum_columns
from npformer.kernels.shared import make_convolution_kernels

make_convolution_kernels(kernel_of, cupy.empty, multiply, sum_columns, as_it_lies="x weight")
