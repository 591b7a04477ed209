"""Models, put together from ``npformer.layers``."""

from npformer.models.bytenet import ByteNet
from npformer.models.description import describe, from_description
from npformer.models.transformer import Transformer

__all__ = ["ByteNet", "Transformer", "describe", "from_description"]
