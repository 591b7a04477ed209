"""What the packages of other backends load, and what they have under the names of the reference."""

import importlib
import pkgutil
from inspect import isfunction

from npformer import reference


def import_all(kernels):
    """Import each file of a folder of kernels, which makes them those of its backend."""
    for file in pkgutil.iter_modules(kernels.__path__):
        importlib.import_module(f"{kernels.__name__}.{file.name}")


def forwarding(package, ops):
    """``__getattr__`` and ``__dir__`` of the package of a backend: its operations, and the other
    functions of the math.

    >>> get, names = forwarding("mine", reference.ops.replaced(relu=abs))
    >>> get("relu")(-3), get("causal_mask") is reference.causal_mask, "relu" in names()
    (3, True, True)
    """
    functions = {name: value for name, value in vars(reference).items() if isfunction(value)}

    def __getattr__(name):
        if name not in functions:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(ops, name, functions[name])

    return __getattr__, lambda: ["ops", *functions]
