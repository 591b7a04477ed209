"""CUDA kernels under the names of the reference operations, for CuPy arrays of float32, float64, float16 and bfloat16.

An operation that has no kernel is the reference's own. Each file in this folder registers the kernels it defines.
"""

import importlib
import pkgutil

from npformer.gpu.backend import backend
from npformer.gpu.blas import tf32
from npformer.gpu.device import *  # noqa: F403
from npformer.reference import *  # noqa: F403
from npformer.reference import __all__ as __all__

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
globals().update(backend.operations)  # these replace the reference's operations, and the submodules of the same names
