"""Attention in tiles: ``reference.flash_attention`` of heads, ``self_attention`` and
``cross_attention`` on packed projections, whose heads are views of them, and all backward passes.

``cpu/attention_tiles`` has the loops, and says why they are fast. ``npformer/kernels/shared.py``
makes the operations of them.
"""

from npformer.cpu import attention_tiles
from npformer.cpu.backend import kernel_of
from npformer.kernels.shared import make_flash_kernels, make_packed_kernels
from npformer.runtime.memory import empty

make_flash_kernels(kernel_of, empty, attention_tiles)
make_packed_kernels(kernel_of, empty, attention_tiles)
