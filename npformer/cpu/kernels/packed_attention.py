"""Attention on packed projections: heads are views, and results and gradients are written in packed
form.
"""

from npformer.cpu import attention_tiles
from npformer.cpu.backend import kernel_of
from npformer.kernels.shared import make_packed_kernels
from npformer.runtime.memory import empty

make_packed_kernels(kernel_of, empty, attention_tiles)
