"""Attention in tiles: of heads, and on packed projections, whose heads are views of them."""

import cupy

from npformer.gpu.backend import kernel_of
from npformer.gpu.kernels import flash_attention
from npformer.kernels.shared import make_flash_kernels, make_packed_kernels

# The kernels add no bias to the scores.
make_flash_kernels(kernel_of, cupy.empty, flash_attention, without="bias")
make_packed_kernels(kernel_of, cupy.empty, flash_attention, without="bias")
