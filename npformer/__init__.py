"""npformer: the Transformer from scratch in NumPy, every backward pass written by hand.

One letter for each axis, everywhere: ``B`` batch, ``T`` query or target length, ``S`` key or source length, ``D`` model
width, ``H`` heads, ``G`` heads of keys and values (H if not given), ``K`` head width (= D/H), ``F`` feed-forward width,
``V`` vocabulary, ``N`` layers.

The names below are the operations that people call, the models, what trains them and what decodes from them. An
operation is computed by the kernels for its arrays, ``npformer.cpu`` or ``npformer.gpu``; ``npformer.reference`` has
the math of all operations, ``npformer.layers`` the building blocks of models. The import needs NumPy alone: numba is
imported by the first operation that is called.

A name is imported when it is first used. If all were imported here, a program that imports ``npformer`` in one thread
and one of its modules in another would fail: each thread would wait for what the other has begun to import. For the
same reason a module imports another package of npformer before a module in it (Python 3.14 fails otherwise).
"""

import ast
import importlib
import sys
from functools import cache
from importlib.util import find_spec

__version__ = "0.2.0"


def _homes():
    """The module that each public name comes from, as ``__init__.pyi`` says."""
    names = ast.parse(__loader__.get_data(f"{__path__[0]}/__init__.pyi"))
    imports = [node for node in names.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}


_HOMES = _homes()
__all__ = list(_HOMES)


@cache
def __getattr__(name):
    module = f"{__name__}.{name}"
    home = _HOMES.get(name, __name__)
    if home != __name__:
        value = getattr(importlib.import_module(home), name)
        return importlib.import_module("npformer.backends").by_arrays(value) if hasattr(value, "record") else value
    if name.isidentifier() and not name.startswith("_") and find_spec(module):
        try:
            return importlib.import_module(module)
        except ImportError as error:  # hasattr() takes it for an error
            raise AttributeError(f"module {module!r} cannot be imported: {error}") from error
    this = sys.modules[__name__]  # for Python's "did you mean"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=this)


def __dir__():
    return sorted({"__version__", *__all__})
