"""Kernels under the names of the reference; what has none is the reference's own."""

from npformer.reference import *  # noqa: F403
from npformer.reference import __all__ as __all__
