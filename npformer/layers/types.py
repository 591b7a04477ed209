"""Type hints for the arguments of layers."""

from collections.abc import Callable, Mapping
from typing import Any

Params = Mapping[str, Any]  # parameters of a layer, by name: arrays, or nested dicts of arrays
Backward = Callable[..., Any]
