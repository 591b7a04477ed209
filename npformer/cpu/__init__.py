"""CPU kernels under the names of the reference operations, for NumPy arrays of float32 and float64.

An operation that has no kernel is the reference's own. Each file of the folder ``kernels``
registers those it defines in ``ops``, the backend; ``npformer.cpu.softmax`` is
``npformer.cpu.ops.softmax``.
"""

import os

try:
    import numba  # noqa: F401
except ValueError as error:  # of a setting
    settings = [f"{name}={os.environ[name]}" for name in os.environ if name.startswith("NUMBA_")]
    advice = f"Unset or correct {', '.join(settings)}"
    raise ImportError(f"numba cannot be imported: {error} {advice}") from error

from npformer.cpu import kernels
from npformer.cpu.backend import ops as ops
from npformer.kernels.forwarding import forwarding, import_all

import_all(kernels)
__getattr__, __dir__ = forwarding(__name__, ops)
