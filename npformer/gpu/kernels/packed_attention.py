"""Attention on packed projections: the kernels read and write the heads as views of them."""

import cupy

from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels.flash_attention import KNOWN, attend, attend_backward, kernel_options
from npformer.kernels.shared import make_packed_kernels

make_packed_kernels(
    kernel_of, cupy.empty, kernel_options, attend, attend_backward, KNOWN, without="bias"
)
