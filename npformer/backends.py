"""Choose a backend: by its name, by the device of the parameters, or by the arrays of a call."""

from collections.abc import Callable
from functools import cache, wraps
from types import ModuleType
from typing import TypeVar, cast

from npformer import reference, tree
from npformer.arrays import is_cupy
from npformer.checks import warn
from npformer.errors import UserError
from npformer.extras import pip_install
from npformer.reference import Ops

NAMES = ("auto", "reference", "cpu", "gpu")
Function = TypeVar("Function", bound=Callable)


AnyBackend = str | Ops | ModuleType


def get_backend(backend: AnyBackend = "auto", params: dict | None = None) -> Ops:
    """The backend with this name; a backend is returned unchanged.

    Parameters
    ----------
    backend : "auto", "reference", "cpu", "gpu", or a backend
        "auto" is "gpu" if the parameters are on a GPU, else "cpu" if numba is installed, else
        "reference". A backend is also taken from its package, such as ``npformer.cpu``.
    params : nested dict, optional
        The parameters of the model; "auto" looks at their device.

    Examples
    --------
    >>> get_backend("cpu")
    <the backend cpu>
    >>> get_backend("cpu").name
    'cpu'
    """
    ops = getattr(backend, "ops", None) if isinstance(backend, ModuleType) else backend
    if isinstance(ops, Ops):
        return ops
    if not isinstance(ops, str) or ops not in NAMES:
        expected = f"one of {NAMES}, or what get_backend returns for one of them"
        raise UserError(f"backend={backend!r}, expected {expected}")
    if ops == "auto":
        return _gpu() if _on_gpu(params) else _best_on_cpu()
    if ops == "reference":
        return reference.ops
    if ops == "gpu":
        return _gpu()
    try:
        return _cpu()
    except ImportError as error:
        raise UserError(f"backend='cpu' needs numba, expected to be installed: {error}") from error


def picklable(backend: AnyBackend) -> AnyBackend:
    """The name of a backend of npformer's, which can be pickled as a backend cannot; another
    backend unchanged.

    >>> picklable(reference.ops)
    'reference'
    """
    name = getattr(getattr(backend, "ops", backend), "name", None)
    return name if name in NAMES and get_backend(name) is get_backend(backend) else backend


def by_arrays(operation: Function) -> Function:
    """An operation that is computed by the backend of the arrays that it is given: the kernels,
    where there are any.

    >>> by_arrays(reference.relu)(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    name = operation.__name__

    @wraps(operation)
    def call(*args, **keywords):
        on_gpu = any(map(is_cupy, (*args, *keywords.values())))
        return getattr(_gpu() if on_gpu else _best_on_cpu(), name)(*args, **keywords)

    call.__module__ = "npformer"  # where pickle finds it
    return cast(Function, call)


def why_no_gpu() -> str | None:
    """The reason why ``backend="gpu"`` cannot be used, or None if it can be."""
    try:
        import cupy
    except ImportError:
        advice = f"{pip_install('cuda13x')}, or cuda12x if nvidia-smi says CUDA 12"
        return f"CuPy is not installed: {advice}"
    except Exception as error:  # an incompatible library may raise any exception
        return f"CuPy is installed, but cannot be imported: {error}"
    try:
        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # no driver, device, permission: CuPy has an exception for each
        advice = "does nvidia-smi find one, and is the driver new enough for this CuPy?"
        return f"CuPy finds no GPU ({advice}): {error}"
    return None


@cache  # so the warning is also issued only once
def _best_on_cpu() -> Ops:
    try:
        return _cpu()
    except ImportError as error:
        warn(f"the slower reference backend is used, as the kernels need numba: {error}")
        return reference.ops


def _cpu() -> Ops:
    from npformer.cpu import ops  # needs numba

    return ops


def _gpu() -> Ops:
    if missing := why_no_gpu():
        raise UserError(f"backend='gpu' needs a GPU and CuPy, expected to find both: {missing}")
    from npformer.gpu import ops

    return ops


def _on_gpu(params):
    return isinstance(params, dict) and is_cupy(tree.first_leaf(params))
