"""Type hints for the arguments of layers."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

Ops = ModuleType  # a backend: npformer.reference, npformer.cpu or npformer.gpu
Params = Mapping[str, Any]  # parameters of a layer, by name: arrays, or nested dicts of arrays
Backward = Callable[..., Any]
