"""CPU kernels under the names of the reference operations, for NumPy arrays of float32 and float64.

An operation that has no kernel is the reference's own. Each file of the folder ``kernels``
registers those it defines in ``ops``, the backend; ``npformer.cpu.softmax`` is
``npformer.cpu.ops.softmax``.

An order to read the files in:

1. ``kernels/softmax.py`` is a kernel as most of them are: a row stays in the cache for all passes.
   ``backend.py`` says which arrays a kernel takes, and how others are converted.
2. Loops are made of ``scalar.py`` (functions of one number), ``rows.py``, ``sums.py`` (in blocks,
   which round little), ``draws.py`` (random bits of dropout) and ``blas.py`` (matrix products).
3. ``kernels/fused.py``: a matrix product, and all that follows it while a row is in the cache.
4. ``attention_tiles``: attention, by the products of ``padded.py``, whose innermost loop is a tile
   of sums in vector registers: ``register_tile.py``, with the instructions of ``llvm.py``.
5. Decoding: ``few_rows``, products of a few rows that threads share; ``linear_maps.py`` and
   ``stack.py``, the arrays of layers; ``kernels/stack_step.py``, all layers as one kernel.
6. How a function becomes machine code: ``jit.py`` (the flags), ``compiling.py`` (one process for
   all), ``kernel_cache.py`` (on disk) and ``ahead.py`` (before a training begins).
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
