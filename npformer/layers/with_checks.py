"""The layers of ``npformer.layers`` check the types of their settings, parameters and key first.

Inside, parameters are plain dicts: models have compared theirs with those that they expect.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, TypeVar, cast

from npformer.checks import check_key, shown
from npformer.layers.types import Params
from npformer.operations.options import check_instance
from npformer.operations.settings import AttentionSettings, LayerSettings

Layer = TypeVar("Layer", bound=Callable)
ARRAYS = ("weight", "bias", "gain")  # the others are dicts


def checked(layer: Layer) -> Layer:
    """A layer that checks its settings, its dict of parameters and its key.

    Type hints and names say which of its arguments these are.
    Its arrays are checked by the operations that it calls.
    """
    signature = inspect.signature(layer)
    checks = {
        name: _check_of(name, parameter.annotation)
        for name, parameter in signature.parameters.items()
    }

    @wraps(layer)
    def call(*args, **keywords):
        try:
            bound = signature.bind(*args, **keywords)
        except TypeError:
            return layer(*args, **keywords)  # which raises Python's own error
        for name, value in bound.arguments.items():
            if checks[name] is not None:
                bound.arguments[name] = checks[name](value)
        return layer(*bound.args, **bound.kwargs)

    call.__module__ = "npformer.layers"  # where pickle finds it
    return cast(Layer, call)


def _check_of(name, hint):
    """A function that returns an argument as the layer takes it, or raises; None: no check."""
    if hint in (AttentionSettings, LayerSettings):
        return partial(check_instance, name, kind=hint)
    if hint == Params:
        return LayerParams.of
    if name == "dropout_key":
        return _check_optional_key
    return None


def _check_optional_key(key):
    return None if key is None else check_key("dropout_key", key)


class LayerParams(dict):
    """The parameters of a layer, for which a missing one is an error that lists what there is.

    >>> LayerParams({"out": {}})["hidden"]
    Traceback (most recent call last):
    ValueError: params has ['out'], expected 'hidden', too
    """

    @classmethod
    def of(cls, params: Any) -> "LayerParams":
        """The same parameters, or an error if they are no dict."""
        if not isinstance(params, Mapping):
            kind = type(params).__name__
            raise TypeError(f"params={shown(params)} is a {kind}, expected a dict of parameters")
        return cls(params)

    def __getitem__(self, name):
        if name not in self:
            raise ValueError(f"params has {list(self)}, expected {name!r}, too")
        value = super().__getitem__(name)
        return value if name in ARRAYS else self.of(value)
