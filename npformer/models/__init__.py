"""Models, put together from ``npformer.layers``."""

from npformer.models.transformer import Transformer

__all__ = ["Transformer"]
