"""Choose a backend: from its name, or from the device of the parameters, to its module."""

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType

from npformer import reference, tree
from npformer.arrays import is_cupy

NAMES = ("auto", "reference", "cpu", "gpu")


def get_backend(backend: str | ModuleType = "auto", params: dict | None = None) -> ModuleType:
    """The module of a backend; a module is returned unchanged.

    Parameters
    ----------
    backend : "auto", "reference", "cpu", "gpu" or a module
        "auto" is "gpu" if the parameters are on a GPU, else "cpu" if numba is installed, else "reference".
    params : nested dict, optional
        The parameters of the model; "auto" looks at their device.

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
    """The reason why ``backend="gpu"`` cannot be used, or None if it can be."""
    try:
        cupy = import_module("cupy")
    except ImportError:
        return (
            "CuPy is not installed: it comes with the extra cuda13x of npformer, or cuda12x if nvidia-smi says CUDA 12"
        )
    except Exception as error:  # an incompatible library may raise any exception
        return f"CuPy is installed, but cannot be imported: {error}"
    try:
        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # no driver, no device, no permission: CuPy has an exception for each
        return f"CuPy finds no GPU (does nvidia-smi find one, and is the driver new enough for this CuPy?): {error}"
    return None


@cache  # so the warning is also issued only once
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
