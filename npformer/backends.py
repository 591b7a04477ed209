"""From the name of a backend to its module."""

from types import ModuleType

from npformer import reference

NAMES = ("auto", "reference", "cpu", "gpu")


def get_backend(backend: str | ModuleType = "auto") -> ModuleType:
    """The module whose operations a model runs on; a module is returned as it is.

    Parameters
    ----------
    backend : "auto", "reference", "cpu", "gpu" or a module
        This version has the reference only, which is what "auto" chooses.

    Examples
    --------
    >>> get_backend("auto").__name__
    'npformer.reference'
    """
    if isinstance(backend, ModuleType):
        return backend
    if backend not in NAMES:
        raise ValueError(f"backend={backend!r}, expected one of {NAMES} or a module with the same operations")
    if backend in ("cpu", "gpu"):
        raise ValueError(f"backend={backend!r} is not part of this version of npformer, expected 'auto' or 'reference'")
    return reference
