"""CUDA kernels under the names of the reference operations, for CuPy arrays of float32, float64,
float16 and bfloat16.

An operation that has no kernel is the reference's own. Each file of the folder ``kernels``
registers those it defines in ``ops``, the backend; ``npformer.gpu.softmax`` is
``npformer.gpu.ops.softmax``.

The sizes of blocks and tiles are usual ones. None was measured, as there was no GPU to do it on.

An order to read the files in:

1. ``kernels/softmax.py`` with ``cuda/softmax.cu``: an operation, and its kernels in CUDA. They
   share ``cuda/common.cuh``; ``launch.py`` compiles and launches them, and ``backend.py`` says
   which arrays they take.
2. ``kernels/linear.py`` and ``kernels/fused.py``: matrix products by cuBLAS (``blas.py``), sums
   over rows (``columns.py``), and ``cuda/fused.cu``, all that follows a product.
3. ``kernels/flash_attention.py``: attention in tiles, by ``cuda/flash_attention.cu`` or, in half
   precision, on tensor cores: ``cuda/tensor_attention.cu``.
4. ``device.py``: what a training asks of a device; ``recording.py``: a step as one CUDA graph, in
   the memory that ``memory.py`` manages.
"""

from npformer.gpu import kernels
from npformer.gpu.backend import ops as ops
from npformer.kernels.forwarding import forwarding, import_all

import_all(kernels)
__getattr__, __dir__ = forwarding(__name__, ops)
