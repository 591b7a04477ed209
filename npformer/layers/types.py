"""Type hints for the arguments of layers."""

from collections.abc import Callable, Mapping
from typing import Any

from npformer.arrays import Array

Params = Mapping[str, Any]  # parameters of a layer, by name: arrays, or nested dicts of arrays
# From the gradient of the output to those of the inputs; the last are those of the parameters.
Backward = Callable[[Array], tuple[Any, ...]]
