"""The layers of ``npformer.layers`` check the types of their settings, parameters and key first,
and afterwards whether they have read all parameters.

Inside, parameters are plain dicts: models have compared theirs with those that they expect.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, TypeVar, cast

from npformer.checks import check_key, shown
from npformer.errors import UserError
from npformer.layers.cache import KeyValueCache
from npformer.layers.types import Params
from npformer.operations.options import check_instance
from npformer.operations.settings import AttentionSettings, LayerSettings

Layer = TypeVar("Layer", bound=Callable)
ARRAYS = ("weight", "bias", "gain")  # the others are dicts
MAPS_OF_MEMORY = ("k", "v", "kv")  # which nobody reads if a cache has what they compute


def checked(layer: Layer, *, reads_a_part: bool = False) -> Layer:
    """A layer that checks its settings, its dict of parameters and its key.

    Type hints and names say which of its arguments these are.
    Its arrays are checked by the operations that it calls.
    If it ``reads_a_part`` of its parameters, the others in the same dict belong to other layers;
    else a parameter that it does not read is an error.
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
        results = layer(*bound.args, **bound.kwargs)
        in_a_cache = isinstance(bound.arguments.get("memory"), KeyValueCache)
        for value in bound.arguments.values():
            if isinstance(value, LayerParams):
                value.check_all_read(MAPS_OF_MEMORY if in_a_cache else (), reads_a_part)
        return results

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
    """The parameters of a layer, which know the names that the layer has asked for.

    A missing one is an error that lists what there is, and one that nobody reads an error that
    lists the names that there may be.

    >>> LayerParams({"out": {}})["hidden"]
    Traceback (most recent call last):
    npformer.UserError: params has ['out'], expected 'hidden', too
    >>> params = LayerParams({"weight": np.eye(2), "bais": np.zeros(2)})
    >>> weight, bias = params["weight"], params.get("bias")
    >>> params.check_all_read()
    Traceback (most recent call last):
    npformer.UserError: params has 'bais', expected only names of ['weight', 'bias']
    """

    def __init__(self, params):
        super().__init__(params)
        self.asked: dict[str, None] = {}  # in their order
        self.below: dict[str, LayerParams] = {}  # the dicts that were read

    @classmethod
    def of(cls, params: Any) -> "LayerParams":
        """The same parameters, or an error if they are no dict."""
        if not isinstance(params, Mapping):
            kind = type(params).__name__
            raise TypeError(f"params={shown(params)} is a {kind}, expected a dict of parameters")
        return cls(params)

    def __getitem__(self, name):
        if name not in self:
            raise UserError(f"params has {list(self)}, expected {name!r}, too")
        value = super().__getitem__(name)
        if name in ARRAYS:
            return value
        if name not in self.below:
            self.below[name] = self.of(value)
        return self.below[name]

    def __contains__(self, name):
        self.asked[name] = None
        return super().__contains__(name)

    def get(self, name, default=None):
        """The parameter of this name, or the default; the layer has then asked for it, too."""
        if name in self:
            return self[name]
        return default

    def check_all_read(self, others=(), reads_a_part=False):
        """Raise an error if there are names that nobody has asked for, apart from ``others``.

        A dict of which nothing was read is none of this layer's, such as the normalisation before a
        sublayer if it stands after it.
        """
        if self.asked and not reads_a_part:
            for name in self:
                if name not in self.asked and name not in others:
                    problem = f"params has {name!r}"
                    raise UserError(f"{problem}, expected only names of {list(self.asked)}")
        for params in self.below.values():
            params.check_all_read(others)
