"""Attention on packed projections: the kernels read and write the heads as views of them."""

import cupy

from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels import flash_attention
from npformer.kernels.shared import make_packed_kernels

make_packed_kernels(kernel_of, cupy.empty, flash_attention, without="bias")
