"""CUDA kernels under the names of the reference operations, for CuPy arrays of float32, float64,
float16 and bfloat16.

An operation that has no kernel is the reference's own. Each file of the folder ``kernels``
registers those it defines in ``ops``, the backend; ``npformer.gpu.softmax`` is
``npformer.gpu.ops.softmax``.
"""

from npformer.gpu import kernels
from npformer.gpu.backend import ops as ops
from npformer.kernels.forwarding import forwarding, import_all

import_all(kernels)
__getattr__, __dir__ = forwarding(__name__, ops)
