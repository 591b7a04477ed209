"""Layers as everybody calls them: they check what layers that call each other take unchecked."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

from npformer.checks import check_key
from npformer.layers.types import Params, check_is_dict
from npformer.operations.options import check_instance
from npformer.reference.settings import AttentionSettings, LayerSettings

Layer = TypeVar("Layer", bound=Callable)


def at_the_door(layer: Layer) -> Layer:
    """A layer that checks its settings, its dict of parameters and its key, as the type hints tell.

    Its arrays are checked by the operations that it calls.
    """
    signature = inspect.signature(layer)
    checks = {name: _check_of(name, parameter.annotation) for name, parameter in signature.parameters.items()}

    @wraps(layer)
    def call(*args, **keywords):
        try:
            given = signature.bind(*args, **keywords).arguments
        except TypeError:
            return layer(*args, **keywords)  # which raises Python's own error
        for name, value in given.items():
            if checks[name] is not None:
                checks[name](value)
        return layer(*args, **keywords)

    return cast(Layer, call)


def _check_of(name, hint):
    """The check of an argument, or None."""
    if hint in (AttentionSettings, LayerSettings):
        return lambda value: check_instance(name, value, hint)
    if hint == Params:
        return check_is_dict
    if name == "dropout_key":
        return lambda value: value is None or check_key(name, value)
    return None
