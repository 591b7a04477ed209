"""Type hints for the arguments of layers, and what takes the parameters of a layer from a dict."""

from collections.abc import Callable, Mapping
from typing import Any

from npformer.arrays import Array
from npformer.checks import shown

Params = Mapping[str, Any]  # parameters of a layer, by name: arrays, or nested dicts of arrays
Backward = Callable[..., Any]


def part(params: Params, name: str) -> Any:
    """What ``params`` has under a name; raises an error that lists what it has if there is nothing.

    >>> part({"out": {}}, "hidden")
    Traceback (most recent call last):
    ValueError: params has ['out'], expected 'hidden', too
    """
    if not isinstance(params, dict):  # nearly all are; to ask whether it is a Mapping takes longer
        check_is_dict(params)
    if name not in params:
        raise ValueError(f"params has {list(params)}, expected {name!r}, too")
    return params[name]


def check_is_dict(params: Params) -> Params:
    """The parameters of a layer; raises an error if they are no dict."""
    if not isinstance(params, Mapping):
        raise TypeError(
            f"params={shown(params)} is a {type(params).__name__}, expected a dict of parameters"
        )
    return params


def weight_and_bias(params: Params) -> tuple[Array, Array | None]:
    """The parameters of a linear map, whose bias may be missing."""
    return part(params, "weight"), params.get("bias")
