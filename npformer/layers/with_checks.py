"""The layers of ``npformer.layers`` check the types of their settings, parameters and key first."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import TypeVar, cast

from npformer.checks import check_key
from npformer.layers.types import Params, check_is_dict
from npformer.operations.options import check_instance
from npformer.operations.settings import AttentionSettings, LayerSettings

Layer = TypeVar("Layer", bound=Callable)


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
        return check_is_dict
    if name == "dropout_key":
        return _check_optional_key
    return None


def _check_optional_key(key):
    return None if key is None else check_key("dropout_key", key)
