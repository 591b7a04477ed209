"""From the name of a backend to its module, and where its arrays are."""

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType

from npformer import reference, tree
from npformer.arrays import is_cupy

NAMES = ("auto", "reference", "cpu", "gpu")


def get_backend(backend: str | ModuleType = "auto", params: dict | None = None) -> ModuleType:
    """The module whose operations a model runs on; a module is returned as it is.

    Parameters
    ----------
    backend : "auto", "reference", "cpu", "gpu" or a module
        "auto" is "gpu" for parameters that are on one, else "cpu" where numba is installed, else "reference".
    params : nested dict, optional
        What the operations will work on: "auto" looks at where it is.

    Examples
    --------
    >>> get_backend("cpu").__name__
    'npformer.cpu'
    """
    if isinstance(backend, ModuleType):
        return backend
    if not isinstance(backend, str) or backend not in NAMES:
        raise ValueError(f"backend={backend!r}, expected one of {NAMES} or a module with the same operations")
    if backend == "auto":
        return _gpu() if _on_gpu(params) else _best_on_cpu()
    if backend == "reference":
        return reference
    if backend == "gpu":
        return _gpu()
    try:
        return import_module("npformer.cpu")
    except ImportError as error:
        raise ValueError(f"backend='cpu' needs numba, expected to be installed: {error}") from error


def why_no_gpu() -> str | None:
    """What is missing for ``backend="gpu"``, or None if nothing is."""
    try:
        cupy = import_module("cupy")
    except ImportError:
        return (
            "CuPy is not installed: it comes with the extra cuda13x of npformer, or cuda12x if nvidia-smi says CUDA 12"
        )
    except Exception as error:  # a library that does not fit the others may raise anything
        return f"CuPy is installed, but cannot be imported: {error}"
    try:
        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # no driver, no device, not allowed: CuPy has a type for each
        return f"CuPy finds no GPU (does nvidia-smi, and a driver that is new enough for this CuPy?): {error}"
    return None


@cache  # which also says it only once
def _best_on_cpu():
    try:
        return import_module("npformer.cpu")
    except ImportError as error:
        warnings.warn(f"the slower reference backend is used, as the kernels need numba: {error}", stacklevel=4)
        return reference


def _gpu():
    if missing := why_no_gpu():
        raise ValueError(f"backend='gpu' needs a GPU and CuPy, expected to find both: {missing}")
    return import_module("npformer.gpu")


def _on_gpu(params):
    return isinstance(params, dict) and any(is_cupy(x) for _, x in tree.leaves(params)[:1])
