"""CPU kernels under the names of the reference operations, for NumPy arrays of float32 and float64.

An operation that has no kernel is the reference's own. Each file in this folder registers the kernels it defines.
"""

import importlib
import os
import pkgutil

try:
    import numba  # noqa: F401
except ValueError as error:  # of a setting
    settings = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("NUMBA_")]
    raise ImportError(f"numba cannot be imported: {error} Unset or correct {', '.join(settings)}") from error

from npformer.cpu.backend import backend
from npformer.reference import *  # noqa: F403
from npformer.reference import __all__ as __all__
from npformer.runtime.host import *  # noqa: F403

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
globals().update(backend.operations)  # these replace the reference's operations, and the submodules of the same names
