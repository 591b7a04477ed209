"""Attention in tiles: of heads, and on packed projections, whose heads are views of them.
``cpu/attention_tiles`` has the loops.
"""

from npformer.cpu import attention_tiles
from npformer.cpu.backend import kernel_of
from npformer.kernels.shared import make_flash_kernels, make_packed_kernels
from npformer.runtime.memory import empty

make_flash_kernels(kernel_of, empty, attention_tiles)
make_packed_kernels(kernel_of, empty, attention_tiles)
