"""From the name of a backend to its module."""

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType

from npformer import reference, tree
from npformer.reference.arrays import is_cupy

NAMES = ("auto", "reference", "cpu")


def get_backend(backend: str | ModuleType = "auto", params: dict | None = None) -> ModuleType:
    """The module whose operations a model runs on; a module is returned as it is.

    Parameters
    ----------
    backend : "auto", "reference", "cpu" or a module
        "auto" is "cpu" where numba is installed, and otherwise, as for parameters on a GPU, "reference". This version
        has no "gpu" yet.
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
        return reference if _on_gpu(params) else _best_on_cpu()
    if backend == "reference":
        return reference
    try:
        return import_module("npformer.cpu")
    except ImportError as error:
        raise ValueError(f"backend='cpu' needs numba, expected to be installed: {error}") from error


@cache  # which also says it only once
def _best_on_cpu():
    try:
        return import_module("npformer.cpu")
    except ImportError as error:
        warnings.warn(f"the slower reference backend is used, as the kernels need numba: {error}", stacklevel=4)
        return reference


def _on_gpu(params):
    return isinstance(params, dict) and any(is_cupy(x) for _, x in tree.leaves(params)[:1])
