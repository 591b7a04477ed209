"""npformer: the Transformer from scratch in NumPy, every backward pass written by hand.

Where to begin, after ``import npformer as nf``; ``help`` of each name has an example:

- ``nf.Transformer`` (from a source to a target), ``nf.LanguageModel`` and ``nf.Encoder`` are
  models. Their parameters are what ``model.init(seed)`` returns;
  ``nf.Trainer(model, nf.Adam(1e-3)).fit(batches)`` trains them.
- ``nf.sample``, ``nf.greedy_decode`` and ``nf.beam_search`` generate sequences with a model and its
  parameters.
- ``nf.pretrained.load(path)`` returns a model that exists, its parameters and its tokenizer.
- ``nf.attention``, ``nf.layer_norm``, ``nf.cross_entropy``, … are operations on arrays, each with
  its backward pass, such as ``nf.attention_backward``.
- ``nf.diagnose(model, params, batch)`` says why a model does not learn, ``nf.gradcheck`` whether a
  backward pass is right, ``nf.explain()`` which operations ran, and for how long.

>>> import npformer as nf
>>> task = nf.CopyTask(vocab=11, max_len=5)
>>> model = nf.Transformer(11, 11, d_model=16, n_heads=2, n_layers=1, d_ff=32)
>>> trainer = nf.Trainer(model, nf.Adam(0.01))
>>> history = trainer.fit((task.batch(i, 32) for i in range(200)), progress=False)
>>> history[-1].loss < 0.5 * history[0].loss
True

One letter for each axis, everywhere: ``B`` batch, ``T`` query or target length, ``S`` key or source
length, ``D`` model width, ``H`` heads, ``G`` heads of keys and values (H if not given), ``K`` head
width (= D/H), ``F`` feed-forward width, ``V`` vocabulary, ``N`` layers.

An operation is computed by the kernels for its arrays, ``npformer.cpu`` or ``npformer.gpu``;
``npformer.reference`` has the math of all operations, ``npformer.layers`` the building blocks of
models. The import needs NumPy alone: numba is imported by the first operation that is called.
"""

# A name is imported when it is first used. If all were imported here, a program that imports
# npformer in one thread and one of its modules in another would fail: each thread would wait for
# what the other has begun to import. For the same reason a module imports another package of
# npformer before a module in it. (Python 3.14 fails otherwise.)

import ast
import importlib
import sys
from functools import cache
from importlib.util import find_spec

__version__ = "0.3.0"


def _homes():
    """The module that each public name comes from, as ``__init__.pyi`` says."""
    names = ast.parse(__loader__.get_data(f"{__path__[0]}/__init__.pyi"))
    imports = [node for node in names.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}


_HOMES = _homes()
# The packages of kernels cannot be imported everywhere.
__all__ = [name for name in _HOMES if name not in ("cpu", "gpu")]


@cache
def __getattr__(name):
    module = f"{__name__}.{name}"
    home = _HOMES.get(name, __name__)
    if home != __name__:
        value = getattr(importlib.import_module(home), name)
        if hasattr(value, "record"):  # an operation
            return importlib.import_module("npformer.backends").by_arrays(value)
        return value
    if name.isidentifier() and not name.startswith("_") and find_spec(module):
        try:
            return importlib.import_module(module)
        except ImportError as error:  # hasattr() takes it for an error
            raise AttributeError(f"module {module!r} cannot be imported: {error}") from error
    this = sys.modules[__name__]  # for Python's "did you mean"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=this)


def __dir__():
    return sorted({"__version__", *_HOMES})
